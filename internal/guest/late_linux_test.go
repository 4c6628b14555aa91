//go:build linux

package guest

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"

	"castellan/internal/channel"
	"castellan/internal/frame"
	"castellan/internal/gate"
)

// After a reboot or a rollback a VM runs long before its guest agent answers, which alone tells where it is: it is waited for.
// A guest that refuses castellan is not waited for.
func TestAgentThatAnswersLate(t *testing.T) {
	for name, c := range map[string]struct {
		agent time.Duration // after which it answers
		other bool          // then another host key does
		limit time.Duration
		want  string
	}{
		"after 100 s":     {agent: 100 * time.Second, limit: bootLimit, want: "22222222-2222-4222-8222-222222222222"},
		"not in time":     {agent: 100 * time.Second, limit: 40 * time.Second, want: "within 40s: "},
		"another's key":   {agent: 10 * time.Second, other: true, limit: bootLimit, want: "host key"},
		"no agent at all": {agent: time.Hour, limit: bootLimit, want: "Proxmox does not tell where it is now"},
	} {
		t.Run(name, func(t *testing.T) {
			pinned, _ := key(t)
			answering := pinned
			if c.other {
				answering, _ = key(t)
			}
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				channels := testChannels(t, func(conf *channel.Config) {
					conf.Own = func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil }
					conf.Dial = func(_ context.Context, to netip.AddrPort) (net.Conn, error) {
						if to.Addr().String() != "10.0.0.9" {
							return nil, errors.New("no route")
						}
						near, far := net.Pipe()
						near, far = buffered(near), buffered(far)
						go says(far, answering, "castellan 1 status\nboot\t22222222-2222-4222-8222-222222222222\nend\n")
						return near, nil
					}
				})
				e, err := channel.New("house-0123456789abcdef", 101, string(frame.VM))
				if err != nil {
					t.Fatal(err)
				}
				e.From = "10.0.0.1"
				if e.HostKeys, err = channel.ParseHostKeys([]string{string(ssh.MarshalAuthorizedKey(pinned.PublicKey()))}); err != nil {
					t.Fatal(err)
				}
				e.Addresses = func(context.Context) ([]netip.Addr, error) {
					if time.Since(began) < c.agent {
						return nil, &gate.UpstreamError{Kind: gate.ErrUnavailable, Message: "QEMU guest agent is not running"}
					}
					return []netip.Addr{netip.MustParseAddr("10.0.0.9")}, nil
				}
				task := task{r: &Runner{channels: channels, pace: 2 * time.Second}, o: opened{where: frame.VM, vmid: 101, node: "pve1"}}
				res, err := task.otherBoot(t.Context(), e, "11111111-1111-4111-8111-111111111111", c.limit)
				got := string(res.Report)
				if err != nil {
					got = err.Error()
				}
				if took := time.Since(began); !strings.Contains(got, c.want) || took < min(c.agent, c.limit)-5*time.Second || took > c.limit+time.Minute {
					t.Errorf("after %s: %s, want %q", took, got, c.want)
				}
				channels.Close()
				time.Sleep(5 * time.Second) // its connections end
				synctest.Wait()
			})
		})
	}
}

// says is an sshd over a connection that takes any key and answers every word alike.
func says(c net.Conn, key ssh.Signer, answer string) {
	defer c.Close()
	conf := &ssh.ServerConfig{PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) { return nil, nil }}
	conf.AddHostKey(key)
	_, channels, requests, err := ssh.NewServerConn(c, conf)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for nc := range channels {
		ch, asks, err := nc.Accept()
		if err != nil {
			return
		}
		go func() {
			for a := range asks {
				_ = a.Reply(a.Type == "exec", nil) // a broken connection shows at the other side
				if a.Type == "exec" {
					_, _ = ch.Write([]byte(answer))
					_, _ = ch.SendRequest("exit-status", false, []byte{0, 0, 0, 0})
					ch.Close()
				}
			}
		}()
	}
}

// buffer is a connection whose writes do not wait for the reader: both sides of ssh begin with one.
type buffer struct {
	net.Conn
	out  chan []byte
	once sync.Once
}

func buffered(c net.Conn) net.Conn {
	b := &buffer{Conn: c, out: make(chan []byte, 1000)}
	go func() {
		for p := range b.out {
			if _, err := c.Write(p); err != nil {
				return
			}
		}
		c.Close()
	}()
	return b
}

func (b *buffer) Write(p []byte) (n int, err error) {
	defer func() {
		if recover() != nil { // it was closed
			n, err = 0, net.ErrClosed
		}
	}()
	b.out <- bytes.Clone(p)
	return len(p), nil
}

func (b *buffer) Close() error {
	b.once.Do(func() { close(b.out); time.AfterFunc(time.Second, func() { b.Conn.Close() }) })
	return nil
}
