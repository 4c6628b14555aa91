//go:build linux

package guestlab

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// agentUnit runs the agent as a VM's does, but for the way in: a socket in place of a serial port.
const agentUnit = `[Service]
ExecStart=/usr/sbin/qemu-ga --method=unix-listen --path=/var/lib/qga.sock
RuntimeDirectory=qemu
[Install]
WantedBy=multi-user.target
`

// Agent is the genuine guest agent, running in a guest that passes for a VM on the node.
type Agent struct {
	UUID string // SMBIOS, as the configuration on the node has it
	c    *Container
}

// Agent turns a guest into what looks like a VM: its configuration moves to qemu-server, and the guest agent runs in it and is
// at the socket where a node has it. The agent serves one connection at a time, as the real serial port does.
func (l *Lab) Agent(t testing.TB, c *Container) *Agent {
	t.Helper()
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	a := &Agent{UUID: fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]), c: c}
	conf := filepath.Join(PVE, "nodes", Node, "qemu-server", strconv.Itoa(c.ID)+".conf")
	text := fmt.Sprintf("agent: 1\nboot: order=scsi0\ncores: 1\nmemory: 512\nname: %s\nnet0: virtio=%s,bridge=vmbr0\nostype: l26\nscsi0: local-zfs:vm-%d-disk-0,size=8G\nscsihw: virtio-scsi-single\nsmbios1: uuid=%s\n",
		c.Name, c.MAC, c.ID, a.UUID)
	unit := filepath.Join(c.Root, "etc/systemd/system/guestlab-agent.service")
	socket := fmt.Sprintf("/run/qemu-server/%d.qga", c.ID)
	if err := errors.Join(os.WriteFile(conf, []byte(text), 0o640), os.Remove(c.ConfigFile()), os.WriteFile(unit, []byte(agentUnit), 0o644), os.MkdirAll(filepath.Dir(socket), 0o755)); err != nil {
		t.Fatalf("guestlab: make guest %d a VM: %v", c.ID, err)
	}
	if c.Unprivileged {
		if err := os.Chown(unit, 100_000, 100_000); err != nil {
			t.Fatalf("guestlab: make guest %d a VM: %v", c.ID, err)
		}
	}
	t.Cleanup(func() {
		if err := errors.Join(os.Remove(conf), os.RemoveAll(socket)); err != nil {
			t.Errorf("guestlab: remove VM %d: %v", c.ID, err)
		}
	})
	c.Run(t, "systemctl", "daemon-reload")
	c.Run(t, "systemctl", "enable", "--quiet", "--now", "guestlab-agent")
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := a.Call(t.Context(), "guest-ping", nil, nil)
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("guestlab: the agent of guest %d does not answer: %v", c.ID, err)
		}
	}
	if err := os.Symlink(a.Socket(), socket); err != nil {
		t.Fatalf("guestlab: make guest %d a VM: %v", c.ID, err)
	}
	return a
}

// Socket is where the agent listens, as the node sees it.
func (a *Agent) Socket() string { return filepath.Join(a.c.Root, "var/lib/qga.sock") }

// Dial connects to the agent. While another connection is open it waits for its end without an answer.
func (a *Agent) Dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", a.Socket())
}

// Restart restarts the agent: what it knew of the programs that it had started is gone.
func (a *Agent) Restart(t testing.TB) {
	t.Helper()
	a.c.Run(t, "systemctl", "restart", "guestlab-agent")
}

// Stop ends the agent until Restart.
func (a *Agent) Stop(t testing.TB) {
	t.Helper()
	a.c.Run(t, "systemctl", "stop", "guestlab-agent")
}

// Call is one command on a connection of its own: arguments and out are what JSON makes of them; either may be nil. It takes
// at most ten seconds. What the agent refuses is an error with its words.
func (a *Agent) Call(ctx context.Context, command string, arguments, out any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := a.Dial(ctx)
	if err != nil {
		return fmt.Errorf("call %s: %w", command, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	ask := map[string]any{"execute": command}
	if arguments != nil {
		ask["arguments"] = arguments
	}
	if err := json.NewEncoder(conn).Encode(ask); err != nil {
		return fmt.Errorf("call %s: %w", command, err)
	}
	line, err := bufio.NewReaderSize(conn, 64<<10).ReadString('\n')
	if err != nil {
		return fmt.Errorf("call %s: %w", command, err)
	}
	var answer struct {
		Return json.RawMessage `json:"return"`
		Error  *struct{ Desc string }
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "\xff")), &answer); err != nil {
		return fmt.Errorf("call %s: read the answer: %w", command, err)
	}
	if answer.Error != nil {
		return fmt.Errorf("call %s: %s", command, answer.Error.Desc)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer.Return, out); err != nil {
		return fmt.Errorf("call %s: read the answer: %w", command, err)
	}
	return nil
}
