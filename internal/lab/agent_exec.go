package lab

import (
	"encoding/base64"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// agentRun is a process that an agent started.
type agentRun struct {
	exited      bool
	code        int
	signal      int
	out, errOut []byte
}

// The API hands base64 on to the agent and back, and knows only characters of one byte: text from outside is characters,
// and each must be a byte.
const mostRead = 16 << 20

// latin1 gives the bytes of a text whose characters are bytes; the genuine API dies of any other.
func latin1(text, where string) ([]byte, error) {
	out := make([]byte, 0, len(text))
	for _, r := range text {
		if r > 0xff {
			return nil, die("Wide character in subroutine entry at %s", where)
		}
		out = append(out, byte(r))
	}
	return out, nil
}

// chars is how bytes of the agent come out of the API.
func chars(b []byte) string {
	out := make([]rune, len(b))
	for i, c := range b {
		out[i] = rune(c)
	}
	return string(out)
}

func agentExec(c *call) (any, error) {
	g, a, err := c.agentOf()
	if err != nil {
		return nil, err
	}
	argv := c.list("command")
	if len(argv) == 0 {
		return nil, bad("command", "property is missing and it is not optional")
	}
	input, err := latin1(c.str("input-data"), "/usr/share/perl5/PVE/QemuServer/Agent.pm line 143.")
	if err != nil {
		return nil, err
	}
	if q, err := c.genuineAgent(g); err != nil {
		return nil, err
	} else if q != nil {
		defer q.Close()
		return q.exec(argv, input, c.has("input-data"))
	}
	a.pid++
	pid := a.pid
	run := &agentRun{}
	p := program{guest: g, agent: a, input: string(input)}
	if err := p.run(argv); err != nil {
		return nil, err
	}
	a.runs[pid] = run
	c.s.after(p.takes, func() {
		if !run.exited {
			*run = agentRun{exited: true, code: p.code, signal: p.signal, out: []byte(p.out), errOut: []byte(p.errOut)}
		}
	})
	return M{"pid": pid}, nil
}

func agentExecStatus(c *call) (any, error) {
	g, a, err := c.agentOf()
	if err != nil {
		return nil, err
	}
	if q, err := c.genuineAgent(g); err != nil {
		return nil, err
	} else if q != nil {
		defer q.Close()
		return q.status(c.num("pid"))
	}
	run := a.runs[c.num("pid")]
	if run == nil {
		return nil, die("Agent error: Invalid parameter 'pid'")
	}
	if !run.exited {
		return M{"exited": 0}, nil
	}
	delete(a.runs, c.num("pid"))
	m := M{"exited": 1}
	if run.signal != 0 {
		m["signal"] = run.signal
	} else {
		m["exitcode"] = run.code
	}
	if len(run.out) > 0 {
		m["out-data"] = chars(run.out)
	}
	if len(run.errOut) > 0 {
		m["err-data"] = chars(run.errOut)
	}
	return m, nil
}

func agentFileRead(c *call) (any, error) {
	g, a, err := c.agentOf()
	if err != nil {
		return nil, err
	}
	if q, err := c.genuineAgent(g); err != nil {
		return nil, err
	} else if q != nil {
		defer q.Close()
		return q.readFile(c.str("file"))
	}
	text, ok := a.files[c.str("file")]
	if !ok {
		return nil, die("can't open file: Agent error: failed to open file '%s' (mode: 'r'): No such file or directory", c.str("file"))
	}
	m := M{"content": chars([]byte(text[:min(len(text), mostRead)])), "bytes-read": min(len(text), mostRead)}
	if len(text) > mostRead {
		m["truncated"] = 1
	}
	return m, nil
}

func agentFileWrite(c *call) (any, error) {
	g, a, err := c.agentOf()
	if err != nil {
		return nil, err
	}
	content, err := latin1(c.str("content"), "/usr/share/perl5/PVE/API2/Qemu/Agent.pm line 488.")
	if c.has("encode") && !c.flag("encode") {
		content, err = base64.StdEncoding.DecodeString(c.str("content"))
		if err != nil {
			err = die("Agent error: 'buf-b64' is not valid base64")
		}
	}
	if err != nil {
		return nil, err
	}
	if q, err := c.genuineAgent(g); err != nil {
		return nil, err
	} else if q != nil {
		defer q.Close()
		return nil, q.writeFile(c.str("file"), content)
	}
	file := c.str("file")
	if !a.dirs[path.Dir(file)] || a.dirs[file] {
		return nil, die("can't open file: Agent error: failed to open file '%s' (mode: 'wb'): No such file or directory", file)
	}
	a.files[file] = string(content)
	return nil, nil
}

// program is what a simulated guest knows to run: a few words that keep to its small state. Whatever else is asked for is
// not found, as a guest without it says.
type program struct {
	guest *guest
	agent *agentState
	input string

	takes       time.Duration
	code        int
	signal      int
	out, errOut string
}

// run carries it out; an error is what the agent answers when it cannot start it.
func (p *program) run(argv []string) error {
	p.takes = 50 * time.Millisecond
	limit := time.Duration(0)
	for len(argv) > 0 {
		switch path.Base(argv[0]) {
		case "env":
			for argv = argv[1:]; len(argv) > 0 && (argv[0] == "-i" || argv[0] == "-C" || strings.Contains(argv[0], "=")); argv = argv[1:] {
				if argv[0] == "-C" && len(argv) > 1 {
					argv = argv[1:]
				}
			}
			continue
		case "setsid":
			argv = argv[1:]
			continue
		case "timeout":
			for argv = argv[1:]; len(argv) > 1 && strings.HasPrefix(argv[0], "-"); argv = argv[2:] {
			}
			if len(argv) > 0 {
				seconds, _ := strconv.Atoi(argv[0]) // what is no number is no limit
				limit, argv = time.Duration(seconds)*time.Second, argv[1:]
			}
			continue
		}
		break
	}
	if len(argv) == 0 {
		return nil
	}
	p.word(argv)
	if p.code == 127 && strings.HasPrefix(argv[0], "/") {
		return die("Agent error: Guest agent command failed, error was 'Failed to execute child process “%s” (No such file or directory)'", argv[0])
	}
	if limit > 0 && p.takes > limit {
		p.takes, p.code, p.out, p.errOut = limit, 124, "", ""
	}
	return nil
}

func (p *program) fail(code int, format string, args ...any) {
	p.code, p.errOut = code, fmt.Sprintf(format, args...)+"\n"
}

func (p *program) word(argv []string) {
	rest := argv[1:]
	switch path.Base(argv[0]) {
	case "echo":
		p.out = strings.Join(rest, " ") + "\n"
	case "true":
	case "false":
		p.code = 1
	case "sleep":
		if len(rest) == 1 {
			p.takes = time.Duration(atoi(rest[0])) * time.Second
		}
	case "hostname":
		p.out = p.guest.name() + "\n"
	case "cat":
		if len(rest) == 0 {
			p.out = p.input
		}
		for _, f := range rest {
			text, ok := p.agent.files[f]
			if !ok {
				p.fail(1, "cat: %s: No such file or directory", f)
				return
			}
			p.out += text
		}
	case "kill":
		p.kill(rest)
	case "stat", "mkdir", "rm", "chmod":
		p.file(path.Base(argv[0]), rest)
	default:
		p.fail(127, "%s: not found", argv[0])
	}
}

// kill knows "-KILL -- PID", "-0 -- PID", and the same for groups.
func (p *program) kill(args []string) {
	args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "--" })
	if len(args) != 2 {
		p.fail(1, "kill: usage")
		return
	}
	run := p.agent.runs[max(atoi(args[1]), -atoi(args[1]))]
	if run == nil || run.exited {
		p.fail(1, "kill: (%s): No such process", args[1])
		return
	}
	if args[0] == "-KILL" {
		*run = agentRun{exited: true, signal: 9}
	}
}

func (p *program) file(word string, args []string) {
	if len(args) == 0 {
		p.fail(1, "%s: missing operand", word)
		return
	}
	at := args[len(args)-1]
	text, is := p.agent.files[at]
	switch {
	case word == "mkdir" && (is || p.agent.dirs[at]):
		p.fail(1, "mkdir: cannot create directory '%s': File exists", at)
	case word == "mkdir" && !p.agent.dirs[path.Dir(at)]:
		p.fail(1, "mkdir: cannot create directory '%s': No such file or directory", at)
	case word == "mkdir":
		p.agent.dirs[at] = true
	case word == "rm":
		for f := range p.agent.files {
			if f == at || strings.HasPrefix(f, at+"/") {
				delete(p.agent.files, f)
			}
		}
		delete(p.agent.dirs, at)
	case !is && !p.agent.dirs[at]:
		p.fail(1, "%s: cannot access '%s': No such file or directory", word, at)
	case word == "stat" && is:
		p.out = fmt.Sprintf("81a4 %d 0 0\n", len(text))
	case word == "stat":
		p.out = "41ed 4096 0 0\n"
	}
}
