// Package command says how risky shell commands and SQL statements look. What it cannot read is high risk: a verdict may
// raise what a change takes, and never lowers it.
package command

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Risk says what a text would do at worst.
type Risk int

// The risks. Low only reads, medium changes something, high destroys, locks out, escapes, or could not be read.
const (
	Low Risk = iota
	Medium
	High
)

func (r Risk) String() string {
	switch r {
	case Low:
		return "low"
	case Medium:
		return "medium"
	}
	return "high"
}

// Verdict is the worst of all commands in a text, with the reasons for that risk, at most eight.
type Verdict struct {
	Risk    Risk
	Reasons []string
}

const (
	maxText    = 128 << 10 // bytes of one text
	maxWork    = 1 << 20   // bytes read over all nested texts
	maxNested  = 12        // shells within shells, substitutions within substitutions
	maxReasons = 8
	maxReason  = 160 // runes
)

// Shell judges a POSIX shell script or command line.
func Shell(text string) Verdict {
	j := newJudge()
	j.shell(text)
	return j.verdict()
}

// Argv judges a command that is run without a shell: the program and its arguments.
func Argv(argv []string) Verdict {
	j := newJudge()
	j.argv(argv)
	return j.verdict()
}

func (j *judge) argv(argv []string) {
	total := 0
	words := make([]word, len(argv))
	for i, a := range argv {
		words[i] = word{text: a, quoted: true}
		total += len(a)
	}
	switch {
	case len(argv) == 0:
		j.raise(High, "no command is given")
	case total > maxText || len(argv) > 10_000:
		j.unread("the command is too long to be read")
	default:
		j.run(invocation{words: words})
	}
}

// SQL judges one or more statements, as PostgreSQL, MySQL and SQLite would each read them.
func SQL(text string) Verdict {
	j := newJudge()
	j.sql(text)
	return j.verdict()
}

// judge collects what is found; the worst wins.
type judge struct {
	risk      Risk
	reasons   [High + 1][]string
	work      int // bytes read so far
	nested    int
	cwd       string // where cd led to, as far as it is told
	functions map[string]bool
	wrappers  map[string]wrapper
	rules     map[string]func(*call)
	within    []string // functions whose bodies are being read
	watch     Watcher
}

func newJudge() *judge { return &judge{wrappers: wrappers(), rules: rules()} }

func (j *judge) raise(r Risk, format string, args ...any) {
	j.risk = max(j.risk, r)
	reason := printable(fmt.Sprintf(format, args...))
	if list := j.reasons[r]; len(list) < maxReasons && !slices.Contains(list, reason) {
		j.reasons[r] = append(list, reason)
	}
}

func (j *judge) verdict() Verdict { return Verdict{Risk: j.risk, Reasons: j.reasons[j.risk]} }

// enter says whether another nested text may be read.
func (j *judge) enter(text string) bool {
	if j.work += len(text); len(text) > maxText || j.work > maxWork {
		j.unread("it is too long to be read")
		return false
	}
	if j.nested >= maxNested {
		j.unread("commands are nested too deep to be read")
		return false
	}
	j.nested++
	return true
}

// printable bounds a reason and keeps it on one line: parts of it were written by the caller.
func printable(s string) string {
	n := 0
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r < 0x20 || r > 0x7e: // looks of other letters can deceive
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	for i := range s {
		if n++; n > maxReason {
			return s[:i] + "..."
		}
	}
	return s
}

// brief is a word as a reason shows it.
func brief(s string) string {
	if utf8.RuneCountInString(s) > 40 {
		r := []rune(s)
		return string(r[:40]) + "..."
	}
	return s
}
