package mcpserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxLine bounds one line of a client, in bytes; maxBatch the messages in it.
const (
	maxLine  = 4 << 20
	maxBatch = 100
)

// grace is how long requests that stand before the end of stdin may take to be answered: who pipes a session in closes
// stdin right after the last line.
const grace = 900 * time.Millisecond

// Stdio serves one client until stdin ends or ctx does, and returns within two seconds of either. Only protocol is
// written to out. A line that is no message is answered with an error, and the next one is read.
func (s *Server) Stdio(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := newLines(out)
	ended := make(chan error, 1)
	go func() {
		err := l.feed(in)
		l.open.wait(ctx, grace)
		close(l.messages)
		ended <- err
	}()
	served := make(chan error, 1)
	go func() { served <- s.mcp.Run(ctx, l) }()
	var err error
	select {
	case err = <-served:
	case err = <-ended:
		err = errors.Join(err, within(served, 800*time.Millisecond, cancel))
	case <-ctx.Done():
		err = within(served, time.Second, cancel)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) || errors.Is(err, mcp.ErrConnectionClosed) {
		return nil
	}
	return err
}

// within waits for the server, and tells running calls to stop half way through the limit.
func within(served <-chan error, limit time.Duration, cancel func()) error {
	half := time.NewTimer(limit / 2)
	defer half.Stop()
	select {
	case err := <-served:
		return err
	case <-half.C:
		cancel()
	}
	rest := time.NewTimer(limit / 2)
	defer rest.Stop()
	select {
	case err := <-served:
		return err
	case <-rest.C:
		return nil
	}
}

// lines is a client that speaks one message a line. It is the transport of its one session, and its connection.
type lines struct {
	messages chan jsonrpc.Message // what the client says; closed at its end
	open     pending

	mu  sync.Mutex // keeps whole lines apart
	out io.Writer

	close  sync.Once
	closed chan struct{}
}

func newLines(out io.Writer) *lines {
	return &lines{messages: make(chan jsonrpc.Message), out: out, closed: make(chan struct{})}
}

func (l *lines) Connect(context.Context) (mcp.Connection, error) { return l, nil }
func (l *lines) SessionID() string                               { return "" }

func (l *lines) Close() error {
	l.close.Do(func() { close(l.closed) })
	return nil
}

func (l *lines) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m, ok := <-l.messages:
		if !ok {
			return nil, io.EOF
		}
		return m, nil
	case <-l.closed:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *lines) Write(ctx context.Context, m jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return fmt.Errorf("write message: %w", err)
	}
	if answers(m) {
		defer l.open.add(-1)
	}
	return l.line(b)
}

func (l *lines) line(b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.out.Write(append(b, '\n'))
	return err
}

// feed passes messages on, one a line; what is none is answered here, since the SDK would end the session over it.
func (l *lines) feed(in io.Reader) error {
	r := bufio.NewReaderSize(in, 64<<10)
	for {
		line, tooLong, err := readLine(r)
		messages, refusal := messagesOf(line, tooLong)
		for _, m := range messages {
			if asks(m) {
				l.open.add(1)
			}
			select {
			case l.messages <- m:
			case <-l.closed:
				return nil
			}
		}
		if refusal != "" {
			if werr := l.line([]byte(refusal)); werr != nil {
				return werr
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// messagesOf reads one line: a message, or the messages of a batch (which the oldest clients may send; each is then
// answered by itself). refusal is the answer to what is neither.
func messagesOf(line []byte, tooLong bool) (messages []jsonrpc.Message, refusal string) {
	line = bytes.TrimSpace(line)
	switch {
	case tooLong:
		return nil, refuse(jsonrpc.CodeInvalidRequest, "the message is larger than 4 MiB")
	case len(line) == 0:
		return nil, ""
	case !json.Valid(line):
		return nil, refuse(jsonrpc.CodeParseError, "the line is no JSON")
	}
	batch := []json.RawMessage{line}
	if line[0] == '[' && (json.Unmarshal(line, &batch) != nil || len(batch) == 0 || len(batch) > maxBatch) {
		return nil, refuse(jsonrpc.CodeInvalidRequest, "the batch is empty or too long")
	}
	for _, text := range batch {
		m, err := jsonrpc.DecodeMessage(text)
		if err != nil {
			return nil, refuse(jsonrpc.CodeInvalidRequest, "the line is no JSON-RPC 2.0 message; nothing of it was done")
		}
		messages = append(messages, m)
	}
	return messages, ""
}

func refuse(code int, text string) string {
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": code, "message": text}})
	if err != nil {
		return `{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"internal error"}}`
	}
	return string(b)
}

// readLine reads up to a newline; of a line that is too long it keeps nothing.
func readLine(r *bufio.Reader) (line []byte, tooLong bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if !tooLong {
			line = append(line, part...)
		}
		if len(line) > maxLine {
			line, tooLong = nil, true
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return line, tooLong, err
	}
}
