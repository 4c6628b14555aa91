package local

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
)

// Peer is the process at the other end of a connection, as the kernel knows it.
type Peer struct {
	UID, GID, PID int
	Account       string // name of the UID; empty when it has none
}

var errNoPeer = errors.New("this system does not tell which account is at the other end of a socket")

func peerOf(c net.Conn, accounts Accounts) (Peer, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return Peer{}, fmt.Errorf("ask for the peer: %T is no unix socket", c)
	}
	p, err := credentials(u)
	if err != nil {
		return Peer{}, fmt.Errorf("ask for the peer: %w", err)
	}
	all, err := accounts.read()
	if err != nil {
		return Peer{}, err
	}
	for _, a := range all {
		if a.uid == p.UID {
			p.Account = a.name
			break
		}
	}
	return p, nil
}

// Accounts are the files that name the accounts and groups of this machine; empty for the usual ones.
type Accounts struct{ Passwd, Group string }

type account struct {
	name, shell string
	uid, gid    int
}

type group struct {
	name    string
	gid     int
	members []string
}

func (a Accounts) read() ([]account, error) {
	var out []account
	err := rows(orElse(a.Passwd, "/etc/passwd"), 7, func(f []string) {
		uid, uerr := strconv.Atoi(f[2])
		gid, gerr := strconv.Atoi(f[3])
		if uerr == nil && gerr == nil {
			out = append(out, account{name: f[0], uid: uid, gid: gid, shell: f[6]})
		}
	})
	return out, err
}

func (a Accounts) groups() ([]group, error) {
	var out []group
	err := rows(orElse(a.Group, "/etc/group"), 4, func(f []string) {
		if gid, err := strconv.Atoi(f[2]); err == nil {
			out = append(out, group{name: f[0], gid: gid, members: strings.Split(f[3], ",")})
		}
	})
	return out, err
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// rows gives the lines of a file whose fields are parted by colons.
func rows(path string, fields int, f func([]string)) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read accounts: %w", err)
	}
	defer file.Close()
	s := bufio.NewScanner(io.LimitReader(file, 16<<20))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		if parts := strings.Split(s.Text(), ":"); len(parts) == fields && !strings.HasPrefix(parts[0], "#") {
			f(parts)
		}
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("read accounts from %s: %w", path, err)
	}
	return nil
}

// Find gives the numbers of an account and of its group.
func (a Accounts) Find(name string) (uid, gid int, err error) {
	all, err := a.read()
	if err != nil {
		return 0, 0, err
	}
	for _, x := range all {
		if x.name == name {
			return x.uid, x.gid, nil
		}
	}
	return 0, 0, fmt.Errorf("there is no account %q on this machine", name)
}

// Number is that of an account.
func (a Accounts) Number(name string) (int, error) {
	uid, _, err := a.Find(name)
	return uid, err
}
