package lab

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"time"
)

// genuine is a connection to a guest agent of the real kind: a JSON value a line.
type genuine struct {
	conn net.Conn
	r    *bufio.Reader
}

const genuineLimit = 10 * time.Second

// genuineAgent opens the agent of a VM where the lab was given one; nil means the simulated one.
func (c *call) genuineAgent(g *guest) (*genuine, error) {
	if c.s.agentSocket == nil {
		return nil, nil
	}
	conn, err := c.s.agentSocket(g.id)
	if err != nil {
		return nil, die("QEMU guest agent is not running")
	}
	if conn == nil {
		return nil, nil
	}
	q := &genuine{conn: conn, r: bufio.NewReaderSize(conn, 64<<10)}
	if err := q.sync(time.Now().UnixNano() & 0x7fffffff); err != nil {
		conn.Close()
		return nil, die("VM %d qmp command 'guest-ping' failed - got timeout", g.id)
	}
	return q, nil
}

func (q *genuine) Close() { q.conn.Close() }

// sync reads away what an earlier speaker left.
func (q *genuine) sync(id int64) error {
	_ = q.conn.SetDeadline(time.Now().Add(genuineLimit)) // a connection without deadlines is still spoken to
	if err := q.put("guest-sync", M{"id": id}); err != nil {
		return err
	}
	for range 1000 {
		var said struct {
			Return json.Number `json:"return"`
		}
		line, err := q.r.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("read agent: %w", err)
		}
		if json.Unmarshal(line, &said) == nil && said.Return.String() == fmt.Sprint(id) {
			return nil
		}
	}
	return fmt.Errorf("read agent: it does not answer")
}

func (q *genuine) put(command string, args M) error {
	m := M{"execute": command}
	if len(args) > 0 {
		m["arguments"] = args
	}
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("write agent: %w", err)
	}
	_, err = q.conn.Write(append(b, '\n'))
	return err
}

// agentRefusal is an error that the agent answers.
type agentRefusal struct{ class, text string }

func (e *agentRefusal) Error() string { return e.text }

// ask sends a command and reads its answer into v.
func (q *genuine) ask(command string, args M, v any) error {
	_ = q.conn.SetDeadline(time.Now().Add(genuineLimit))
	if err := q.put(command, args); err != nil {
		return die("VM qmp command '%s' failed - got timeout", command)
	}
	line, err := q.r.ReadBytes('\n')
	if err != nil {
		return die("VM qmp command '%s' failed - got timeout", command)
	}
	var said struct {
		Return json.RawMessage `json:"return"`
		Error  *struct {
			Class string `json:"class"`
			Text  string `json:"desc"`
		} `json:"error"`
	}
	if err := json.Unmarshal(line, &said); err != nil {
		return die("VM qmp command '%s' failed - unable to parse its answer", command)
	}
	if said.Error != nil {
		return &agentRefusal{said.Error.Class, said.Error.Text}
	}
	if v == nil {
		return nil
	}
	return json.Unmarshal(said.Return, v)
}

// agentError is how the API tells what the agent refused.
func agentErrorOf(err error) error {
	if r, ok := err.(*agentRefusal); ok {
		return die("Agent error: %s", r.text)
	}
	return err
}

// command carries out a command without arguments; the API hands its answer on, errors among it.
func (q *genuine) command(name string) (any, error) {
	var v any
	err := q.ask("guest-"+name, nil, &v)
	if r, ok := err.(*agentRefusal); ok {
		return M{"result": M{"error": M{"class": r.class, "desc": r.text}}}, nil
	}
	if err != nil {
		return nil, err
	}
	return M{"result": v}, nil
}

func (q *genuine) exec(argv []string, input []byte, given bool) (any, error) {
	args := M{"path": argv[0], "capture-output": true}
	if len(argv) > 1 {
		args["arg"] = argv[1:]
	}
	if given {
		args["input-data"] = base64.StdEncoding.EncodeToString(input)
	}
	var said struct {
		PID int `json:"pid"`
	}
	if err := q.ask("guest-exec", args, &said); err != nil {
		return nil, agentErrorOf(err)
	}
	return M{"pid": said.PID}, nil
}

func (q *genuine) status(pid int) (any, error) {
	var said map[string]any
	if err := q.ask("guest-exec-status", M{"pid": pid}, &said); err != nil {
		return nil, agentErrorOf(err)
	}
	m := M{}
	for k, v := range said {
		switch x := v.(type) {
		case bool:
			m[k] = b2i(x)
		case float64:
			m[k] = int(x)
		case string:
			b, err := base64.StdEncoding.DecodeString(x)
			if err != nil {
				return nil, die("the agent's %s is no base64", k)
			}
			m[k] = chars(b)
		}
	}
	return m, nil
}

func (q *genuine) open(file, mode string) (int, error) {
	var handle int
	if err := q.ask("guest-file-open", M{"path": file, "mode": mode}, &handle); err != nil {
		return 0, die("can't open file: %v", agentErrorOf(err))
	}
	return handle, nil
}

func (q *genuine) readFile(file string) (any, error) {
	handle, err := q.open(file, "r")
	if err != nil {
		return nil, err
	}
	defer func() { _ = q.ask("guest-file-close", M{"handle": handle}, nil) }() // what was read counts
	var content []byte
	for {
		var said struct {
			Text string `json:"buf-b64"`
			EOF  bool   `json:"eof"`
		}
		if err := q.ask("guest-file-read", M{"handle": handle, "count": 1 << 20}, &said); err != nil {
			return nil, agentErrorOf(err)
		}
		b, err := base64.StdEncoding.DecodeString(said.Text)
		if err != nil {
			return nil, die("the agent's answer is no base64")
		}
		content = append(content, b...)
		if said.EOF || len(content) >= mostRead {
			m := M{"content": chars(content), "bytes-read": len(content)}
			if !said.EOF {
				m["truncated"] = 1
			}
			return m, nil
		}
	}
}

func (q *genuine) writeFile(file string, content []byte) error {
	handle, err := q.open(file, "wb")
	if err != nil {
		return err
	}
	if err := q.ask("guest-file-write", M{"handle": handle, "buf-b64": base64.StdEncoding.EncodeToString(content)}, nil); err != nil {
		_ = q.ask("guest-file-close", M{"handle": handle}, nil) // the first error is told
		return agentErrorOf(err)
	}
	return agentErrorOf(q.ask("guest-file-close", M{"handle": handle}, nil))
}
