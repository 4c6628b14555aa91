package guest

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"castellan/internal/frame"
	"castellan/internal/gate"
	"castellan/internal/lane"
)

// The words of a run: what stands last in its path.
const (
	wordProbe       = "probe"
	wordCommand     = "command"
	wordScript      = "script"
	wordReadFile    = "read-file"
	wordWriteFile   = "write-file"
	wordMaintenance = "maintenance"
	wordDeadMan     = "dead-man"
)

const (
	defaultLimit  = 30
	defaultOutput = 40_000
)

// opened is a run whose values are known.
type opened struct {
	where  frame.Where
	word   string
	node   string
	vmid   int
	values map[string][]string
}

// openRun reads a catalogued run; open gives the text of each value.
func openRun(r gate.Request, open func(gate.Value) (string, error)) (opened, error) {
	path, ok := strings.CutPrefix(r.Operation, "RUN /nodes/{node}/")
	if !ok {
		return opened{}, fmt.Errorf("read run: %s is none", r.Operation)
	}
	o := opened{where: frame.Host, word: path, values: map[string][]string{}}
	for prefix, where := range map[string]frame.Where{"lxc/{vmid}/": frame.CT, "qemu/{vmid}/": frame.VM} {
		if word, ok := strings.CutPrefix(path, prefix); ok {
			o.where, o.word = where, word
		}
	}
	for _, p := range r.Params {
		for _, v := range p.Values {
			text, err := open(v)
			if err != nil {
				return opened{}, fmt.Errorf("read run: parameter %s: %w", p.Name, err)
			}
			o.values[p.Name] = append(o.values[p.Name], text)
		}
	}
	if o.node = o.text("node"); !nodeName(o.node) {
		return opened{}, fmt.Errorf("read run: %q is no name of a node", o.node)
	}
	if o.where != frame.Host {
		id, err := lane.ID(o.text("vmid"))
		if err != nil {
			return opened{}, fmt.Errorf("read run: %w", err)
		}
		o.vmid = id
	}
	return o, nil
}

// text is the one value of a parameter.
func (o opened) text(name string) string {
	if v := o.values[name]; len(v) == 1 {
		return v[0]
	}
	return ""
}

func (o opened) yes(name string) bool {
	return slices.Contains([]string{"1", "true", "yes", "on"}, strings.ToLower(o.text(name)))
}

func (o opened) number(name string, otherwise int) (int, error) {
	text := o.text(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("read run: %s=%q is no number", name, text)
	}
	return n, nil
}

// place is where lanes see it.
func (o opened) place() lane.Place {
	return lane.Place{Where: lane.Where(o.where), Node: o.node, VMID: o.vmid}
}

func (o opened) String() string { return o.place().String() }

// args are the arguments of a probe.
func (o opened) args() (map[string]string, error) {
	out := map[string]string{}
	for _, a := range o.values["arg"] {
		name, value, ok := strings.Cut(a, "=")
		if _, twice := out[name]; !ok || name == "" || twice {
			return nil, fmt.Errorf("read run: arg %q is not name=value, or is given twice", bounded(a, 80))
		}
		out[name] = value
	}
	return out, nil
}

func (o opened) interpreter() string {
	if i := o.text("interpreter"); i != "" {
		return i
	}
	return "sh"
}

// run is the part of an ask for a probe, a command or a script.
func (o opened) run() (*frame.Run, error) {
	seconds, err := o.number("timeout", defaultLimit)
	if err != nil {
		return nil, err
	}
	most, err := o.number("max-output", defaultOutput)
	if err != nil {
		return nil, err
	}
	r := &frame.Run{Limit: time.Duration(min(seconds, 300)) * time.Second, MaxOutput: min(most, frame.MaxOutput), Env: o.values["env"], Dir: o.text("dir")}
	if in := o.text("input"); in != "" {
		r.Input = []byte(in)
	}
	switch o.word {
	case wordProbe:
		r.Lane, r.Probe = frame.Probe, o.text("probe")
		r.MaxOutput = frame.MaxOutput
		r.Args, err = o.args()
	case wordCommand:
		r.Lane, r.Argv, r.Stream = frame.Command, o.values["command"], true
	case wordScript:
		r.Lane, r.Script, r.Interpreter, r.Stream = frame.Script, o.text("script"), o.interpreter(), true
		r.Root = o.where == frame.Host && o.yes("root")
	default:
		return nil, fmt.Errorf("read run: there is no run %q", o.word)
	}
	return r, err
}

// file is the part of an ask for a file.
func (o opened) file() (*frame.File, error) {
	f := &frame.File{Path: o.text("path")}
	var err error
	if o.word == wordReadFile {
		f.Max, err = o.number("max", 256<<10)
		f.Max = min(f.Max, frame.MaxFile)
		return f, err
	}
	f.Expect = o.text("expect")
	plain, coded := o.values["content"], o.values["content64"]
	switch {
	case len(plain) > 0 && len(coded) > 0:
		return nil, fmt.Errorf("read run: content and content64 are both given")
	case len(coded) > 0:
		if f.Content, err = base64.StdEncoding.DecodeString(o.text("content64")); err != nil {
			return nil, fmt.Errorf("read run: content64 is no base64: %w", err)
		}
	case len(plain) > 0:
		f.Content = []byte(o.text("content"))
	default:
		return nil, fmt.Errorf("read run: neither content nor content64 is given")
	}
	if len(f.Content) > frame.MaxFile {
		return nil, fmt.Errorf("read run: the content is longer than %d bytes", frame.MaxFile)
	}
	if text := o.text("mode"); text != "" {
		mode, err := strconv.ParseUint(text, 8, 32)
		if err != nil || mode > 0o777 {
			return nil, fmt.Errorf("read run: mode %q is no octal one", text)
		}
		f.Mode = uint32(mode)
	}
	return f, nil
}

// word is the part of an ask for a fixed word of the node.
func (o opened) wordOf() *frame.Word {
	if o.word == wordMaintenance {
		return &frame.Word{Name: "maintenance", Args: map[string]string{"mode": o.text("mode")}}
	}
	w := &frame.Word{Name: "dead_man", Args: map[string]string{}}
	for _, name := range []string{"action", "what", "seconds", "guest"} {
		if text := o.text(name); text != "" {
			w.Args[name] = text
		}
	}
	return w
}

// ask is what a bridge is sent, without the place's site and identity.
func (o opened) ask(id string) (frame.Ask, error) {
	a := frame.Ask{V: frame.Version, ID: id, Verb: frame.Exec, Place: frame.Place{Node: o.node, Where: o.where, VMID: o.vmid}}
	var err error
	switch o.word {
	case wordReadFile, wordWriteFile:
		a.Verb = frame.Read
		if o.word == wordWriteFile {
			a.Verb = frame.Write
		}
		a.File, err = o.file()
	case wordMaintenance, wordDeadMan:
		a.Verb, a.Word = frame.Manage, o.wordOf()
	default:
		a.Run, err = o.run()
	}
	return a, err
}
