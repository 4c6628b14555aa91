package proxmox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"castellan/internal/gate"
)

// The bounds of the API's way to guest agents, in bytes.
const (
	AgentInput   = 64 << 10 // of standard input
	AgentContent = 60 << 10 // of a file that is written
	AgentOutput  = 16 << 20 // of each output, and of a file that is read: more is cut off by the agent
)

// agentSends is how many requests one permitted run may come to: scripts are put into a file and taken away again, what
// runs too long is killed.
const agentSends = 12

// Agent is the guest agent of one VM, for one permitted run. What is sent through it belongs to that run.
type Agent struct {
	c     *Client
	write gate.Write
	node  string
	vmid  string

	mu   sync.Mutex
	left int
}

// OpenAgent takes the permit of a run. The agent is that of the VM that the run is for; a run for another place gets one that
// sends nothing.
func (c *Client) OpenAgent(p *gate.Permit) (*Agent, error) {
	w, err := p.Take()
	if err != nil {
		return nil, err
	}
	return c.agent(w), nil
}

func (c *Client) agent(w gate.Write) *Agent {
	a := &Agent{c: c, write: w}
	if strings.HasPrefix(w.Request.Operation, "RUN /nodes/{node}/qemu/{vmid}/") {
		a.left = agentSends
		a.node, a.vmid = agentPlace(w)
	}
	return a
}

// agentPlace reads where the run is for; what cannot be opened stays empty, and no request is made of it.
func agentPlace(w gate.Write) (node, vmid string) {
	text := func(name string) string {
		v := w.Request.Get(name)
		if len(v) != 1 {
			return ""
		}
		s, err := w.Open(v[0])
		if err != nil {
			return ""
		}
		return s
	}
	return text("node"), text("vmid")
}

// Permitted is the run that the permit was for.
func (a *Agent) Permitted() gate.Write { return a.write }

// AgentRun is a program to be started by a guest agent.
type AgentRun struct {
	Argv  []string
	Input []byte
	Limit time.Duration // then it is killed
	// Group says that the program leads a process group of its own, as setsid makes one: the whole group is killed and looked
	// for afterwards.
	Group bool
	// Settle asks to see afterwards that nothing of the group is left.
	Settle bool
}

// AgentEnd is how it ended.
type AgentEnd struct {
	PID            int
	Code           *int // absent when a signal ended it
	Signal         int
	Out, Err       []byte
	OutCut, ErrCut bool // the agent has cut it off
	TimedOut       bool
	Gone           bool // nothing of it is left, seen so afterwards
	Took           time.Duration
}

// request makes a request to the agent's part of the API.
func agentRequest(method, node, vmid, word string, params map[string][]string) gate.Request {
	r := gate.Request{Product: kindPVE, Operation: method + " /nodes/{node}/qemu/{vmid}/agent/" + word}
	add := func(name string, texts ...string) {
		p := gate.Param{Name: name}
		for _, t := range texts {
			p.Values = append(p.Values, gate.Value{Text: t})
		}
		r.Params = append(r.Params, p)
	}
	for _, name := range []string{"command", "content", "file", "input-data"} { // in the order of their names
		if v, ok := params[name]; ok {
			add(name, v...)
		}
	}
	add("node", node)
	if v, ok := params["pid"]; ok {
		add("pid", v...)
	}
	add("vmid", vmid)
	return r
}

func plainText(v gate.Value) (string, error) { return v.Text, nil }

// send sends one of the requests that the run comes to.
func (a *Agent) send(ctx context.Context, word string, params map[string][]string) (gate.Answer, error) {
	a.mu.Lock()
	if a.left--; a.left < 0 || a.node == "" || a.vmid == "" {
		a.mu.Unlock()
		return gate.Answer{}, &gate.UpstreamError{Kind: gate.ErrInternal, Delivery: gate.NotCarriedOut, Message: "the permit allows nothing more for this guest agent", Hint: "Nothing was sent."}
	}
	a.mu.Unlock()
	answer, err := a.c.send(ctx, gate.Write{Target: a.write.Target, Address: a.write.Address, Request: agentRequest("POST", a.node, a.vmid, word, params), Open: plainText})
	if err != nil {
		return answer, agentError(err, word)
	}
	return answer, nil
}

// latin1 is bytes as the API takes and gives them: each a character of its own. It encodes and decodes base64 on the way to
// the agent and knows only such characters.
func latin1(b []byte) string {
	out := make([]rune, len(b))
	for i, c := range b {
		out[i] = rune(c)
	}
	return string(out)
}

// bytesOf undoes latin1. Text with other characters was not made so and is taken as it is.
func bytesOf(s string) []byte {
	out := make([]byte, 0, len(s))
	for _, r := range s {
		if r > 0xff {
			return []byte(s)
		}
		out = append(out, byte(r))
	}
	return out
}

// Exec starts a program, waits for its end and kills it at its limit. handle is told what it is called.
func (a *Agent) Exec(ctx context.Context, r AgentRun, handle func(string)) (AgentEnd, error) {
	switch {
	case len(r.Argv) == 0:
		return AgentEnd{}, tooMuch("no program is given")
	case len(r.Input) > AgentInput:
		return AgentEnd{}, tooMuch("the standard input has %d bytes; through the guest agent the API takes %d at most", len(r.Input), AgentInput)
	}
	params := map[string][]string{"command": r.Argv}
	if len(r.Input) > 0 {
		params["input-data"] = []string{latin1(r.Input)}
	}
	began := a.c.now()
	answer, err := a.send(ctx, "exec", params)
	if err != nil {
		return AgentEnd{}, err
	}
	var said struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal(answer.Data, &said); err != nil || said.PID < 1 {
		return AgentEnd{}, &gate.UpstreamError{Kind: gate.ErrUnknownOutcome, Delivery: gate.MaybeDone, Message: "the answer to exec names no process", Hint: "It may run. Look into the guest before anything is repeated."}
	}
	if handle != nil {
		handle(fmt.Sprintf("pid %d at %d", said.PID, began.Unix()))
	}
	end, err := a.await(ctx, said.PID, r)
	end.PID, end.Took = said.PID, a.c.now().Sub(began)
	return end, err
}

func tooMuch(format string, args ...any) error {
	return &gate.UpstreamError{Kind: gate.ErrInvalid, Delivery: gate.NotCarriedOut, Message: fmt.Sprintf(format, args...), Hint: "Nothing was sent. Give less at once, or put it into a file of the guest by another way."}
}

const (
	agentPollFirst = 25 * time.Millisecond
	agentPollMost  = 700 * time.Millisecond
	agentGrace     = 4 * time.Second // for what limits it in the guest
)

// await asks for the end of a process until it has one, and kills it when it has not.
func (a *Agent) await(ctx context.Context, pid int, r AgentRun) (AgentEnd, error) {
	limit := a.c.now().Add(r.Limit + agentGrace)
	end, running, err := a.poll(ctx, pid, limit)
	late := running || a.tookAll(end, r, limit)
	if err != nil || !late {
		if err == nil && r.Group && r.Settle {
			end.Gone = a.settled(ctx, pid)
		} else if err == nil {
			end.Gone = !r.Settle
		}
		return end, err
	}
	// What it has started may be left even where it has ended itself.
	group := pid
	if r.Group {
		group = -pid
	}
	// Without "--" some kills read no more than the first digit of a group, which is everybody.
	_, kerr := a.short(ctx, "kill", "-KILL", "--", strconv.Itoa(group))
	if running {
		if end, running, err = a.poll(ctx, pid, a.c.now().Add(agentGrace)); err != nil {
			return end, err
		}
	}
	end.TimedOut = true
	end.Gone = !running && kerr == nil && r.Group && a.settled(ctx, pid)
	return end, nil
}

// tookAll says whether a program that has ended was ended by its limit in the guest.
func (a *Agent) tookAll(end AgentEnd, r AgentRun, limit time.Time) bool {
	if a.c.now().Before(limit.Add(-agentGrace)) {
		return false
	}
	return end.Signal != 0 || end.Code != nil && (*end.Code == 124 || *end.Code == 137 || *end.Code == 143)
}

// short runs a program of a moment.
func (a *Agent) short(ctx context.Context, argv ...string) (AgentEnd, error) {
	answer, err := a.send(ctx, "exec", map[string][]string{"command": append([]string{"/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}, argv...)})
	if err != nil {
		return AgentEnd{}, err
	}
	var said struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal(answer.Data, &said); err != nil || said.PID < 1 {
		return AgentEnd{}, errors.New("the answer to exec names no process")
	}
	end, running, err := a.poll(ctx, said.PID, a.c.now().Add(agentGrace))
	if err == nil && running {
		err = errors.New("it did not end")
	}
	return end, err
}

// settled looks whether a process group is empty: only the words for it count, since a kill that knows no "--" complains of
// that beside.
func (a *Agent) settled(ctx context.Context, pid int) bool {
	for range 3 {
		end, err := a.short(ctx, "kill", "-0", "--", strconv.Itoa(-pid))
		if err != nil || end.Code == nil || *end.Code == 126 || *end.Code == 127 {
			return false // nothing was seen
		}
		if strings.Contains(string(end.Err), "No such process") {
			return true
		}
		if pause(ctx, 200*time.Millisecond) != nil {
			return false
		}
	}
	return false
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// poll asks for the end of a process until the time is over. Reading its end takes it away, so nobody else may ask. An agent
// that does not answer under load is asked again.
func (a *Agent) poll(ctx context.Context, pid int, until time.Time) (AgentEnd, bool, error) {
	t, err := a.c.target(a.write.Target)
	if err != nil {
		return AgentEnd{}, false, err
	}
	return a.c.pollAgent(ctx, t, a.node, a.vmid, pid, until)
}

func (c *Client) pollAgent(ctx context.Context, t *target, node, vmid string, pid int, until time.Time) (AgentEnd, bool, error) {
	wait, stopped := agentPollFirst, 0
	var last error
	for {
		end, running, err := c.agentStatus(ctx, t, node, vmid, pid)
		u := asUpstream(err)
		switch {
		case err == nil && !running:
			return end, false, nil
		case err == nil:
			last, stopped = nil, 0
		case ctx.Err() != nil:
			return AgentEnd{}, true, ctx.Err()
		case u == nil || u.Status == 403 || u.Status == 401 || u.Status == 404 || strings.Contains(strings.ToLower(u.Message), "invalid parameter 'pid'"):
			return AgentEnd{}, false, lostRun(pid, err)
		case strings.Contains(u.Message, "is not running") && strings.HasPrefix(u.Message, "VM "):
			if stopped++; stopped > 2 {
				return AgentEnd{}, false, lostRun(pid, err)
			}
			last = err
		default: // busy: it is asked again
			last = err
		}
		if !c.now().Before(until) {
			if last != nil {
				return AgentEnd{}, true, lostRun(pid, last)
			}
			return AgentEnd{}, true, nil
		}
		if err := pause(ctx, wait); err != nil {
			return AgentEnd{}, true, err
		}
		wait = min(wait*3/2, agentPollMost)
	}
}

func lostRun(pid int, err error) error {
	return &gate.UpstreamError{Kind: gate.ErrUnknownOutcome, Delivery: gate.MaybeDone, Cause: err, Message: fmt.Sprintf("process %d was started in the guest, and its end cannot be read: %s", pid, clean(err.Error(), 400)),
		Hint: "Its result is read once and may have been lost with an answer. Look into the guest before anything is repeated."}
}

// agentStatus asks once.
func (c *Client) agentStatus(ctx context.Context, t *target, node, vmid string, pid int) (AgentEnd, bool, error) {
	answer, err := c.read(ctx, t, agentRequest("GET", node, vmid, "exec-status", map[string][]string{"pid": {strconv.Itoa(pid)}}))
	if err != nil {
		return AgentEnd{}, false, err
	}
	var said struct {
		Exited       any     `json:"exited"`
		ExitCode     *int    `json:"exitcode"`
		Signal       int     `json:"signal"`
		OutData      *string `json:"out-data"`
		ErrData      *string `json:"err-data"`
		OutTruncated any     `json:"out-truncated"`
		ErrTruncated any     `json:"err-truncated"`
	}
	if err := json.Unmarshal(answer.Data, &said); err != nil || said.Exited == nil {
		return AgentEnd{}, false, &gate.UpstreamError{Kind: gate.ErrUnknownOutcome, Delivery: gate.MaybeDone, Status: 404, Message: "the answer to exec-status says nothing of the process"}
	}
	if !saysYes(said.Exited) {
		return AgentEnd{}, true, nil
	}
	end := AgentEnd{PID: pid, Signal: said.Signal, OutCut: saysYes(said.OutTruncated), ErrCut: saysYes(said.ErrTruncated)}
	if said.Signal == 0 {
		end.Code = said.ExitCode
	}
	if said.OutData != nil {
		end.Out = bytesOf(*said.OutData)
	}
	if said.ErrData != nil {
		end.Err = bytesOf(*said.ErrData)
	}
	return end, false, nil
}

// saysYes reads a truth value as the products write them.
func saysYes(v any) bool {
	switch x := v.(type) {
	case bool:
		return x
	case float64:
		return x != 0
	case string:
		return x != "" && x != "0"
	}
	return false
}

// LookAgent asks once for the end of a process that was started before, and takes it away where there is one.
func (c *Client) LookAgent(ctx context.Context, target, node, vmid string, pid int) (AgentEnd, bool, error) {
	t, err := c.target(target)
	if err != nil {
		return AgentEnd{}, false, err
	}
	return c.agentStatus(ctx, t, node, vmid, pid)
}

// AgentAge is for how long the VM's agent runs, as the kernel of a Linux guest counts: its process numbers, and what they
// stand for, begin anew with it. It reads two files that tell the agent of itself, and starts nothing.
func (c *Client) AgentAge(ctx context.Context, target, node, vmid string) (time.Duration, error) {
	t, err := c.target(target)
	if err != nil {
		return 0, err
	}
	stat, _, err := c.agentFile(ctx, t, node, vmid, "/proc/self/stat")
	if err != nil {
		return 0, err
	}
	up, _, err := c.agentFile(ctx, t, node, vmid, "/proc/uptime")
	if err != nil {
		return 0, err
	}
	const ticks = 100 // of a second, whatever the kernel's own clock
	text := string(stat)
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:]) // the name before it may hold anything
	since, _, _ := strings.Cut(string(up), " ")
	if len(f) < 20 {
		return 0, errors.New("the agent does not tell since when it runs")
	}
	began, e1 := strconv.ParseFloat(f[19], 64)
	now, e2 := strconv.ParseFloat(since, 64)
	age := now - began/ticks
	if e1 != nil || e2 != nil || !(age >= 0 && age < 1e9) {
		return 0, errors.New("the agent does not tell since when it runs")
	}
	return time.Duration(age * float64(time.Second)), nil
}

// ReadFile reads a file of the VM; cut says that it is longer than what the agent gives.
func (a *Agent) ReadFile(ctx context.Context, path string) (content []byte, cut bool, err error) {
	t, err := a.c.target(a.write.Target)
	if err != nil {
		return nil, false, err
	}
	return a.c.agentFile(ctx, t, a.node, a.vmid, path)
}

func (c *Client) agentFile(ctx context.Context, t *target, node, vmid, path string) (content []byte, cut bool, err error) {
	answer, err := c.read(ctx, t, agentRequest("GET", node, vmid, "file-read", map[string][]string{"file": {path}}))
	if err != nil {
		return nil, false, agentError(err, "file-read")
	}
	var said struct {
		Content   *string `json:"content"`
		Truncated any     `json:"truncated"`
	}
	if err := json.Unmarshal(answer.Data, &said); err != nil || said.Content == nil {
		return nil, false, &gate.UpstreamError{Kind: gate.ErrUnavailable, Delivery: gate.NotCarriedOut, Message: "the answer to file-read holds no content"}
	}
	return bytesOf(*said.Content), saysYes(said.Truncated), nil
}

// WriteFile replaces the content of a file of the VM, or makes the file. It is not done at one stroke: who reads it meanwhile
// may see a part.
func (a *Agent) WriteFile(ctx context.Context, path string, content []byte) error {
	if len(content) > AgentContent {
		return tooMuch("the content has %d bytes; through the guest agent the API takes %d at most", len(content), AgentContent)
	}
	_, err := a.send(ctx, "file-write", map[string][]string{"file": {path}, "content": {latin1(content)}})
	return err
}
