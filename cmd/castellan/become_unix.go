//go:build unix

package main

import (
	"fmt"
	"os"
	"syscall"

	"castellan/internal/local"
)

// become gives up root's rights for those of the daemon's account: what root makes would be closed to the daemon, and
// root's files are none of castellan's business. It does nothing for anybody else.
func (a *app) become(account string) error {
	if account == "" || !a.mayBecome || os.Geteuid() != 0 {
		return nil
	}
	uid, gid, err := local.Accounts{}.Find(account)
	if err != nil || uid == 0 {
		return nil // daemon check says what is wrong with the account; as root nothing counts as separate
	}
	for _, set := range []func() error{func() error { return syscall.Setgroups([]int{gid}) }, func() error { return syscall.Setgid(gid) }, func() error { return syscall.Setuid(uid) }} {
		if err := set(); err != nil {
			return fmt.Errorf("become the account %s: %w", account, err)
		}
	}
	return nil
}
