package helper

import (
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"

	"castellan/internal/patch"
)

// Installed is what the script of Install, or of Detect, reports.
type Installed struct {
	HostKeys  []string // of the guest's sshd, "TYPE BASE64"
	System    patch.System
	Account   string
	Port      int
	Packages  []string // that were missing and are installed now
	Automatic patch.Automatic
	Notes     []string // what may keep castellan out, and what could not be read
	Refused   string   // nothing was enrolled: why
}

// ParseInstalled reads it. Host keys that are none are left out and named.
func ParseInstalled(b []byte) (Installed, error) {
	e, err := patch.ParseEnrolment(b)
	if err != nil {
		return Installed{}, err
	}
	out := Installed{System: e.System, Account: e.Account, Port: e.Port, Packages: e.Packages, Automatic: e.Automatic, Notes: e.Notes, Refused: e.Refused}
	for _, text := range e.HostKeys {
		key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(text))
		if err != nil || len(options) > 0 || len(rest) > 0 {
			out.Notes = append(out.Notes, fmt.Sprintf("the guest reports a host key that is none: %.60q", text))
			continue
		}
		out.HostKeys = append(out.HostKeys, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))))
	}
	if out.Refused == "" && e.Word == "enrol" {
		switch {
		case len(out.HostKeys) == 0:
			return out, fmt.Errorf("read enrolment: the guest reports no host key, so its sshd could not be told from another")
		case out.Account != Account:
			return out, fmt.Errorf("read enrolment: the account is %.40q", out.Account)
		case out.Port == 0:
			return out, fmt.Errorf("read enrolment: the guest reports no port of its sshd")
		}
	}
	return out, nil
}

// ParseRemoved reads what the script of Uninstall reports: what it removed, or why it did not.
func ParseRemoved(b []byte) (removed []string, refused string, err error) {
	e, err := patch.ParseEnrolment(b)
	if err != nil {
		return nil, "", err
	}
	if e.Word != "unenrol" {
		return nil, "", fmt.Errorf("read report: it is of %q, not of unenrol", e.Word)
	}
	return e.Removed, e.Refused, nil
}
