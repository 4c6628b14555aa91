package mcpserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxLine bounds one message of a client, in bytes.
const maxLine = 4 << 20

// Stdio serves one client until stdin ends or ctx does, and returns within two seconds of either. Only protocol is
// written to out. A line that is no JSON is answered with a parse error, and the next one is read.
func (s *Server) Stdio(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &lockedWriter{w: out}
	pr, pw := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := feed(in, pw, w)
		pw.CloseWithError(io.EOF)
		ended <- err
	}()
	served := make(chan error, 1)
	go func() {
		served <- s.mcp.Run(ctx, &mcp.IOTransport{Reader: pr, Writer: w, MaxLineLength: maxLine + 1024})
	}()
	var err error
	select {
	case err = <-served:
	case err = <-ended:
		err = errors.Join(err, within(served, time.Second, cancel))
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

// feed passes whole JSON lines on.
func feed(in io.Reader, to io.Writer, answers io.Writer) error {
	r := bufio.NewReaderSize(in, 64<<10)
	for {
		line, tooLong, err := readLine(r)
		line = bytes.TrimSpace(line)
		switch {
		case tooLong:
			if _, werr := io.WriteString(answers, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"the message is larger than 4 MiB"}}`+"\n"); werr != nil {
				return werr
			}
		case len(line) == 0:
		case !json.Valid(line):
			if _, werr := io.WriteString(answers, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"the line is no JSON"}}`+"\n"); werr != nil {
				return werr
			}
		default:
			if _, werr := to.Write(append(line, '\n')); werr != nil {
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

// lockedWriter keeps whole messages apart: the SDK and the parse errors share one output.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func (l *lockedWriter) Close() error { return nil }
