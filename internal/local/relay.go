package local

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"castellan/internal/gate"
)

// Relay carries the lines of an MCP client between its stdio and the daemon until either ends or ctx does. When the
// daemon goes away while the client is there, every request that is open or still comes is answered with an error that
// says so; a new connection is never made behind the client's back.
func Relay(ctx context.Context, path string, h Hello, in io.Reader, out io.Writer) error {
	h.Kind = KindMCP
	conn, r, _, err := Dial(ctx, path, h)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	k := &relay{conn: conn, out: &lines{w: out}, open: map[string]bool{}}
	ended := make(chan struct{}) // the client's side
	go func() {
		defer close(ended)
		k.fromClient(in)
	}()
	lost := k.fromDaemon(r)
	if ctx.Err() != nil {
		return nil
	}
	select {
	case <-ended: // the client hung up, and got the rest of its answers
		return nil
	default:
	}
	k.abandon()
	select { // the client learns it from its next request, or hangs up
	case <-ended:
	case <-ctx.Done():
	}
	return gate.Fail(gate.ErrUnavailable, "Start the daemon, then let the client start castellan serve again.", "the daemon at %s ended the connection: %v", path, lost)
}

// relay keeps count of the requests that the daemon owes an answer.
type relay struct {
	conn net.Conn
	out  *lines

	mu   sync.Mutex
	open map[string]bool // ids of requests as written by the client
	gone bool
}

// maxMessage bounds one message of a client; longer ones are passed on in pieces and not looked at: the daemon refuses
// them.
const maxMessage = 5 << 20

// fromClient passes lines to the daemon; once that is gone it answers them.
func (k *relay) fromClient(in io.Reader) {
	r := bufio.NewReaderSize(in, 64<<10)
	for {
		line, err := k.line(r)
		if len(line) > 0 {
			ids := requests(line)
			if k.noted(ids) {
				for _, id := range ids {
					k.fail(id)
				}
			} else if _, werr := k.conn.Write(line); werr != nil {
				_ = k.conn.SetReadDeadline(time.Now()) // fromDaemon ends, and answers what is open
			}
		}
		if err != nil {
			if u, ok := k.conn.(*net.UnixConn); ok {
				_ = u.CloseWrite() // the daemon finishes what it has
			}
			return
		}
	}
}

// line reads up to a newline, or a piece of what is longer than any message.
func (k *relay) line(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for len(line) < maxMessage {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
	return line, nil
}

// noted adds requests to those that are open, and says whether the daemon is gone.
func (k *relay) noted(ids []string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.gone {
		for _, id := range ids {
			k.open[id] = true
		}
	}
	return k.gone
}

// fromDaemon passes whole lines to the client.
func (k *relay) fromDaemon(r *bufio.Reader) error {
	for {
		line, err := readLine(r, maxReply)
		if err != nil {
			if errors.Is(err, io.EOF) {
				return errors.New("it was stopped, or it failed")
			}
			return err
		}
		k.settle(line)
		k.out.mu.Lock()
		_, err = k.out.w.Write(append(line, '\n'))
		k.out.mu.Unlock()
		if err != nil {
			return fmt.Errorf("write to the client: %w", err)
		}
	}
}

// settle strikes the request that a line answers.
func (k *relay) settle(line []byte) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method *string         `json:"method"`
	}
	if json.Unmarshal(line, &m) == nil && m.Method == nil && len(m.ID) > 0 {
		k.mu.Lock()
		delete(k.open, string(m.ID))
		k.mu.Unlock()
	}
}

// abandon answers every open request.
func (k *relay) abandon() {
	k.mu.Lock()
	k.gone = true
	var ids []string
	for id := range k.open {
		ids = append(ids, id)
	}
	clear(k.open)
	k.mu.Unlock()
	slices.Sort(ids)
	for _, id := range ids {
		k.fail(id)
	}
}

// fail answers a request in place of the daemon.
func (k *relay) fail(id string) {
	_ = k.out.write(map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(id), "error": map[string]any{"code": -32000,
		"message": "the castellan daemon is gone; what this request had begun is not known: start castellan serve again, then look at list_plans before trying again"}})
}

// requests are the ids of the requests in a line: of one message, or of a batch.
func requests(line []byte) []string {
	line = bytes.TrimSpace(line)
	batch := []json.RawMessage{line}
	if len(line) > 0 && line[0] == '[' && json.Unmarshal(line, &batch) != nil {
		return nil
	}
	var ids []string
	for _, raw := range batch {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method *string         `json:"method"`
		}
		if json.Unmarshal(raw, &m) == nil && m.Method != nil && len(m.ID) > 0 && string(m.ID) != "null" {
			ids = append(ids, string(m.ID))
		}
	}
	return ids
}
