package guest

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"unicode/utf8"

	"castellan/internal/frame"
	"castellan/internal/gate"
	"castellan/internal/lane"
)

// printed is one output of a run as an answer has it.
type printed struct {
	text, base64 string
	cut          bool
}

// show gives an output as text where it is UTF-8 without NULs, else in base64. head and tail are what was kept of total bytes.
func show(head, tail []byte, total int64) printed {
	left := total - int64(len(head)) - int64(len(tail))
	cut := left > 0
	if cut { // the cut may go through a character
		head = wholeEnd(head)
		tail = wholeBegin(tail)
		left = total - int64(len(head)) - int64(len(tail))
	}
	if plain(head) && plain(tail) {
		if !cut {
			return printed{text: string(head) + string(tail)}
		}
		return printed{text: string(head) + fmt.Sprintf("\n[… %d bytes left out here …]\n", left) + string(tail), cut: true}
	}
	return printed{base64: base64.StdEncoding.EncodeToString(slices.Concat(head, tail)), cut: cut}
}

func plain(b []byte) bool { return utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 }

// wholeEnd leaves out a character whose end was cut off.
func wholeEnd(b []byte) []byte {
	for n := 1; n <= min(utf8.UTFMax-1, len(b)); n++ {
		if c := b[len(b)-n]; utf8.RuneStart(c) {
			if c >= 0xc0 && !utf8.FullRune(b[len(b)-n:]) {
				return b[:len(b)-n]
			}
			break
		}
	}
	return b
}

// wholeBegin leaves out the end of a character whose begin was cut off.
func wholeBegin(b []byte) []byte {
	for n := range min(utf8.UTFMax, len(b)) {
		if utf8.RuneStart(b[n]) {
			return b[n:]
		}
	}
	return b
}

// outputs puts the two outputs into a result.
func outputs(res *gate.RunResult, out, errs printed) {
	res.Stdout, res.Stdout64, res.Stderr, res.Stderr64 = out.text, out.base64, errs.text, errs.base64
	res.Cut = out.cut || errs.cut
	if out.cut && out.base64 != "" || errs.cut && errs.base64 != "" {
		res.Note = joined(res.Note, "what is in base64 is the begin and the end of what was printed, joined")
	}
}

// resultOf turns what a bridge told of a run into an answer. accepted says which exit codes count.
func resultOf(r *frame.Result, accepted func(argv []string, code int) bool) gate.RunResult {
	res := gate.RunResult{Signal: bounded(r.Signal, 20), TimedOut: r.TimedOut, Gone: r.Gone, TookMS: r.Took.Milliseconds(), Way: "bridge", User: bounded(r.User, 64),
		StdoutBytes: max(r.Out.Total, 0), StderrBytes: max(r.Err.Total, 0)}
	if r.Code != nil && r.Signal == "" {
		code := *r.Code
		res.ExitCode = &code
		res.OK = !r.TimedOut && accepted(r.Argv, code)
	}
	outputs(&res, show(clamp(r.Out)), show(clamp(r.Err)))
	return res
}

// clamp holds an output to what a bridge may keep of one.
func clamp(o frame.Output) (head, tail []byte, total int64) {
	head = o.Head[:min(len(o.Head), frame.MaxOutput)]
	tail = o.Tail[len(o.Tail)-min(len(o.Tail), frame.MaxOutput):]
	return head, tail, max(o.Total, int64(len(o.Head)+len(o.Tail)))
}

// fileOf turns a file of a guest into an answer.
func fileOf(f *frame.Found) *gate.RunFile {
	out := &gate.RunFile{Path: bounded(f.Path, 4096), Size: f.Size, Mode: fmt.Sprintf("%04o", f.Mode&0o7777), UID: f.UID, GID: f.GID, SHA256: bounded(f.SHA256, 64), Cut: f.Cut, Absent: f.Absent}
	content := f.Content[:min(len(f.Content), frame.MaxFile)]
	if f.Cut {
		if whole := wholeEnd(content); plain(whole) {
			content = whole
		}
	}
	if plain(content) {
		out.Content = string(content)
	} else {
		out.Content64 = base64.StdEncoding.EncodeToString(content)
	}
	return out
}

// zero is what counts for commands and scripts.
func zero(_ []string, code int) bool { return code == 0 }

// answered gives the exit codes that count for a probe: those of the alternative that was run.
func answered(inv lane.Invocation) func(argv []string, code int) bool {
	return func(argv []string, code int) bool { return chosen(inv, argv).Answered(code) }
}

// chosen is the alternative of a probe that these arguments are of.
func chosen(inv lane.Invocation, argv []string) lane.Invocation {
	for _, i := range inv.Alternatives {
		if slices.Equal(i.Argv, argv) {
			return i
		}
	}
	return inv
}

// whole says of a probe's answer what it lacks.
func whole(i lane.Invocation, res gate.RunResult) gate.RunResult {
	switch {
	case !res.OK || res.ExitCode == nil || i.Whole(*res.ExitCode):
	case res.StdoutBytes == 0:
		res.OK = false
		res.Note = joined(res.Note, "it gave no answer: standard error says why")
	default:
		res.Note = joined(res.Note, "a part of the answer is missing: standard error says which")
	}
	return res
}

func joined(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}
