//go:build unix

package store

import (
	"errors"
	"syscall"
)

func processExists(pid int) bool {
	return pid > 0 && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
