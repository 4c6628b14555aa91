// Package frame is what castellan and its bridge on a Proxmox node say to each other: one JSON value a line, both ways,
// many runs at once over one connection.
//
// castellan sends an Ask, the bridge answers with one or more Tells of the same ID; the last of them has an Ending.
package frame

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Version of the protocol. A bridge of another version refuses everything but Hello.
const Version = 1

// Bounds, in bytes.
const (
	MaxLine   = 4 << 20   // of one line, either way
	MaxScript = 64 << 10  // of a script
	MaxInput  = 1 << 20   // of standard input
	MaxOutput = 200_000   // of what is kept of each of the two outputs
	MaxFile   = 2 << 20   // of a file that is read or written
	MaxArgv   = 128 << 10 // of all arguments together
)

// Verb is what an Ask wants.
type Verb string

// The verbs.
const (
	Hello  Verb = "hello"  // who are you, what do you allow
	Exec   Verb = "exec"   // run a probe, a command or a script
	Look   Verb = "look"   // what became of the run of this ID; never starts anything
	Kill   Verb = "kill"   // end the run of this ID
	Read   Verb = "read"   // a file in a guest
	Write  Verb = "write"  // a file in a guest
	Manage Verb = "manage" // a fixed word for the node
)

// Where a run takes place.
type Where string

// The places.
const (
	Host Where = "host"
	CT   Where = "lxc"
	VM   Where = "qemu"
)

// Place is the node or guest that an Ask is for, as castellan knows it. The bridge refuses what is not so.
type Place struct {
	Site  string `json:"site"` // as gate names sites: the name of the cluster or node, "-", 16 hex digits of the cluster's root certificate
	Node  string `json:"node"`
	Where Where  `json:"where"`
	VMID  int    `json:"vmid,omitempty"`
	// What tells the guest from a later one of this id, as the API shows it now: of a container the volume of its root and
	// the hardware address of its first network card, of a VM the SMBIOS uuid. What is empty is not compared; a guest of
	// which all is empty is refused.
	Root string `json:"root,omitempty"`
	MAC  string `json:"mac,omitempty"`
	UUID string `json:"uuid,omitempty"`
}

// Ask is one line to the bridge.
type Ask struct {
	V     int    `json:"v"`
	ID    string `json:"id"` // of the run: 1 to 64 of A-Z a-z 0-9 . _ -; a bridge never starts one ID twice
	Verb  Verb   `json:"verb"`
	Place Place  `json:"place,omitzero"`
	Run   *Run   `json:"run,omitempty"`  // of Exec
	File  *File  `json:"file,omitempty"` // of Read and Write
	Word  *Word  `json:"word,omitempty"` // of Manage
}

// Lane says which of the three locks a run must pass.
type Lane string

// The lanes.
const (
	Probe   Lane = "probe"
	Command Lane = "command"
	Script  Lane = "script"
)

// Run is one probe, command or script.
type Run struct {
	Lane Lane `json:"lane"`
	// Of a probe: its name and typed arguments. Both sides make the command from their own catalogue.
	Probe string            `json:"probe,omitempty"`
	Args  map[string]string `json:"args,omitempty"`
	// Of a command: the exact arguments, program first.
	Argv []string `json:"argv,omitempty"`
	// Of a script: its text and what runs it ("sh", "bash", "python3"): it is given the script as a file, never as an argument.
	Script      string        `json:"script,omitempty"`
	Interpreter string        `json:"interpreter,omitempty"`
	Input       []byte        `json:"input,omitempty"` // standard input; none is an empty one
	Env         []string      `json:"env,omitempty"`   // "NAME=value", beside the bridge's own clean ones
	Dir         string        `json:"dir,omitempty"`   // absolute; empty = "/"
	Limit       time.Duration `json:"limit"`           // then it is killed
	MaxOutput   int           `json:"max_output"`      // bytes of each output that are kept, half from its begin and half from its end
	Root        bool          `json:"root,omitempty"`  // on a host: as root, which takes Secret
	Secret      string        `json:"secret,omitempty"`
	Stream      bool          `json:"stream,omitempty"` // tell of output while it runs
}

// File is a file in a guest.
type File struct {
	Path    string `json:"path"` // absolute, as the guest sees it
	Max     int    `json:"max,omitempty"`
	Content []byte `json:"content,omitempty"` // of Write
	Mode    uint32 `json:"mode,omitempty"`    // of a new file; 0 = 0644
	// Expect is the SHA-256 (hex) of what a Write replaces, "absent" for a new file: anything else there is refused.
	Expect string `json:"expect,omitempty"`
}

// Word is a fixed command for the node itself.
type Word struct {
	Name string            `json:"name"` // "maintenance", "dead_man"
	Args map[string]string `json:"args,omitempty"`
}

// Ending says that no more Tells follow, and why.
type Ending string

// The endings.
const (
	Done    Ending = "done"    // it ran (or the file, word or hello is in this Tell); Result says how it went
	Refused Ending = "refused" // nothing was started; Reason says which rule, Hint who can change it and where
	Unknown Ending = "unknown" // of Look: this bridge knows of no such run; or it was started and its end is not known
	Failed  Ending = "failed"  // it was begun and something on the bridge's side broke: Reason
)

// Tell is one line from the bridge.
type Tell struct {
	ID      string `json:"id"`
	Started bool   `json:"started,omitempty"` // the process is there; no more Refused can follow
	Out     []byte `json:"out,omitempty"`     // a piece of standard output, where streaming was asked for
	Err     []byte `json:"err,omitempty"`
	Ending  Ending `json:"ending,omitempty"`
	Running bool   `json:"running,omitempty"` // of Look: it goes on
	Reason  string `json:"reason,omitempty"`
	Hint    string `json:"hint,omitempty"`

	Result *Result `json:"result,omitempty"`
	File   *Found  `json:"file,omitempty"`
	Hello  *Self   `json:"hello,omitempty"`
	Text   string  `json:"text,omitempty"` // what a word says
}

// Result is how a run ended.
type Result struct {
	Argv     []string      `json:"argv"`             // what was run in the end, a script's text left out
	Code     *int          `json:"code,omitempty"`   // exit code; absent when a signal ended it
	Signal   string        `json:"signal,omitempty"` // "KILL", "SEGV"
	TimedOut bool          `json:"timed_out,omitempty"`
	Gone     bool          `json:"gone"` // no process of this run is left, seen so afterwards
	Out      Output        `json:"out"`
	Err      Output        `json:"err"`
	Took     time.Duration `json:"took"`
	User     string        `json:"user,omitempty"` // on a host: the account that ran it
}

// Output is what a run printed to one of its outputs.
type Output struct {
	Head  []byte `json:"head,omitempty"`
	Tail  []byte `json:"tail,omitempty"` // empty where Head is all
	Total int64  `json:"total"`          // bytes printed; Total - len(Head) - len(Tail) were left out between
}

// Found is a file that was read, or the one that a write replaced.
type Found struct {
	Path    string `json:"path"`
	Size    int64  `json:"size"`
	Mode    uint32 `json:"mode"`
	UID     int    `json:"uid"` // as the guest sees it
	GID     int    `json:"gid"`
	Content []byte `json:"content,omitempty"`
	Cut     bool   `json:"cut,omitempty"` // Content is its begin only
	SHA256  string `json:"sha256,omitempty"`
	Absent  bool   `json:"absent,omitempty"`
}

// Self is what a bridge says of itself. It is shown and compared, and grants nothing.
type Self struct {
	Version  int               `json:"version"`
	Build    string            `json:"build"`
	Site     string            `json:"site"`
	Node     string            `json:"node"`
	Lanes    map[Where][]Lane  `json:"lanes"`
	Guests   []string          `json:"guests"` // ids, or "*"
	Account  string            `json:"account,omitempty"`
	Root     bool              `json:"root,omitempty"`
	Words    []string          `json:"words,omitempty"`
	Settings map[string]string `json:"settings,omitempty"` // where each came from, for refusals
}

// ErrTooLong is a line beyond MaxLine: nothing after it can be trusted, so the connection ends.
var ErrTooLong = errors.New("read frame: the line is too long")

// Reader reads values a line.
type Reader struct{ r *bufio.Reader }

// NewReader makes a Reader.
func NewReader(r io.Reader) *Reader { return &Reader{bufio.NewReaderSize(r, 64<<10)} }

// Next reads one line into v; io.EOF at a clean end. Unknown keys are errors: a bridge must not overlook what it was asked.
func (r *Reader) Next(v any) error {
	var line []byte
	for {
		part, err := r.r.ReadSlice('\n')
		if len(line)+len(part) > MaxLine {
			return ErrTooLong
		}
		line = append(line, part...)
		if err == nil {
			break
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if errors.Is(err, io.EOF) && len(line) > 0 {
			return fmt.Errorf("read frame: %w", io.ErrUnexpectedEOF)
		}
		return err
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("read frame: %v", err) // not wrapped: an empty line is no end
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) { // More is silent about a closing bracket
		return errors.New("read frame: more than one value in a line")
	}
	return nil
}

// Writer writes values, one a line. It is safe for concurrent use.
type Writer struct {
	mu sync.Mutex
	w  io.Writer
}

// NewWriter makes a Writer.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Put writes one value.
func (w *Writer) Put(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	if len(b) >= MaxLine {
		return ErrTooLong
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.w.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	return nil
}
