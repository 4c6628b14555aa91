package anchor

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"castellan/internal/ledger"
)

// journalSink sends heads to the systemd journal by its native protocol, one datagram each.
type journalSink struct{ path string }

func newJournal(p plan) *journalSink { return &journalSink{p.Path} }

func (s *journalSink) readable() bool { return false }
func (s *journalSink) away() bool     { return false }

func (s *journalSink) latest(context.Context) (string, error) { return "", errNotReadable }

func (s *journalSink) put(ctx context.Context, note string, _ bool) error {
	c, err := ledger.ParseCheckpoint(note)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	field := func(name, value string) {
		if !strings.Contains(value, "\n") {
			b.WriteString(name + "=" + value + "\n")
			return
		}
		b.WriteString(name + "\n")
		_ = binary.Write(&b, binary.LittleEndian, uint64(len(value))) // into memory: cannot fail
		b.WriteString(value + "\n")
	}
	field("MESSAGE", fmt.Sprintf("ledger head of %d records", c.Size))
	field("PRIORITY", "5")
	field("SYSLOG_IDENTIFIER", "castellan")
	field("CASTELLAN_ORIGIN", c.Origin)
	field("CASTELLAN_SIZE", strconv.FormatInt(c.Size, 10))
	field("CASTELLAN_HEAD", note)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unixgram", s.path)
	if err != nil {
		return fmt.Errorf("reach journal: %w", err)
	}
	defer conn.Close()
	if t, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(t) // a full socket must not hold this up
	}
	if _, err := conn.Write(b.Bytes()); err != nil {
		return fmt.Errorf("send to journal: %w", err)
	}
	return nil
}
