//go:build linux

package helper

import (
	"strings"
	"testing"
	"time"

	"castellan/internal/guestlab"
	"castellan/internal/patch"
)

// Whose a listening socket is comes from the kernel and systemd: root's, a system unit's, or that of somebody with an account, whatever
// his program calls itself and wherever he starts it.
func TestWhosePortsAre(t *testing.T) {
	t.Parallel()
	h := enrol(t, guestlab.Guest{Unprivileged: true})
	h.Run(t, "sh", "-c", `useradd -m alice
cat >/usr/local/bin/hold <<'END'
#!/usr/bin/python3
import socket, sys, time, ctypes
ctypes.CDLL(None).prctl(15, sys.argv[2].encode(), 0, 0, 0)
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("0.0.0.0", int(sys.argv[1])))
s.listen()
time.sleep(3600)
END
chmod 755 /usr/local/bin/hold
unit() { printf '[Service]\nUser=%s\nExecStart=%s\n%s\n' "$2" "$3" "$4" >/etc/systemd/system/$1.service; systemctl start $1.service; }
systemctl daemon-reload
unit of-root root '/usr/local/bin/hold 2001 plain'
unit of-alice alice '/usr/local/bin/hold 2002 plain'
unit of-daemon daemon '/usr/local/bin/hold 2003 plain'
unit of-slice alice '/usr/local/bin/hold 2006 plain' Slice=web.slice
unit of-dynamic '' '/usr/local/bin/hold 2007 plain' DynamicUser=yes
# As a job of cron's: root's service starts it for her. And one that calls itself like what ss prints of a service.
unit like-cron root "/usr/sbin/runuser -u alice -- /usr/local/bin/hold 2004 plain"
unit like-ss root "/usr/sbin/runuser -u alice -- /usr/local/bin/hold 2005 '\")) ino:1'"`)
	want := map[int]string{22: "system", 2001: "system", 2002: "system", 2003: "system", 2004: "account", 2005: "account", 2006: "system", 2007: "system"}
	house := patch.House{}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		out := h.word(t, patch.Services, "")
		var err error
		if house, err = patch.ParseServices(out); err != nil || len(house.Unread) > 0 {
			t.Fatalf("%v %+v\n%s", err, house, out)
		}
		got := map[int]string{}
		for _, p := range house.Ports {
			got[p.Port] = p.Owner
		}
		same := true
		for port, owner := range want {
			same = same && got[port] == owner
		}
		if same {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("got %v, want %v\n%s", got, want, h.Run(t, "ss", "-Htulnpe"))
		}
	}
	if len(house.Cards) == 0 || house.Cards[0] != strings.ToLower(h.MAC) {
		t.Errorf("cards %v, and it has %s", house.Cards, h.MAC)
	}
	// Without ss, by what the kernel's tables tell.
	plain := h.Feed(t, []byte(strings.ReplaceAll(string(helperText(t)), "has ss &&", "false &&")), "sh", "-s", "services")
	seen, err := patch.ParseServices(plain.Stdout)
	if err != nil {
		t.Fatalf("%v\n%s%s", err, plain.Stdout, plain.Stderr)
	}
	for _, p := range seen.Ports {
		if w := map[int]string{22: "system", 2001: "system", 2004: "account"}[p.Port]; w != "" && p.Owner != w {
			t.Errorf("without ss: %+v", p)
		}
	}
}

func helperText(t *testing.T) []byte {
	t.Helper()
	text, err := Text(patch.APT)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(text)
}
