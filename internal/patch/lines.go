package patch

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of a report; see also maxChanges.
const (
	maxReport = 1 << 20
	maxLines  = 20_000
	maxLine   = 4096
	maxWhys   = 30   // different reasons not to install
	maxTexts  = 100  // reasons, notes, problems
	maxRows   = 2000 // packages, units, ports
)

// report is the lines of one, by key.
type report struct {
	word     string
	rows     map[string][][]string
	concerns []string
	asked    map[string]bool // keys that somebody read
}

// readReport takes a report apart. It is of one of the words given, complete, and bounded.
func readReport(b []byte, words ...string) (*report, error) {
	if len(b) > maxReport {
		return nil, fmt.Errorf("read report: it has %d bytes; %d is the most", len(b), maxReport)
	}
	b = bytes.TrimSuffix(b, []byte("\n"))
	lines := bytes.Split(b, []byte("\n"))
	if len(lines) > maxLines {
		return nil, fmt.Errorf("read report: it has more than %d lines", maxLines)
	}
	head := string(bytes.TrimSuffix(lines[0], []byte("\r")))
	r := &report{rows: map[string][][]string{}, asked: map[string]bool{}}
	for _, w := range words {
		if head == "castellan 1 "+w {
			r.word = w
		}
	}
	if r.word == "" {
		return nil, fmt.Errorf("read report: it begins with %q, not with %q", clip(Clean(head), 60), "castellan 1 "+words[0])
	}
	if last := bytes.TrimSuffix(lines[len(lines)-1], []byte("\r")); string(last) != "end" || len(lines) < 2 {
		return nil, fmt.Errorf("read report: it is cut off after %d lines: the line %q is missing", len(lines), "end")
	}
	for _, l := range lines[1 : len(lines)-1] {
		text := string(bytes.TrimSuffix(l, []byte("\r")))
		if text == "end" {
			return nil, fmt.Errorf("read report: it goes on after its end")
		}
		if len(text) > maxLine {
			text = text[:maxLine]
			r.concern("a line of the report was longer than %d bytes", maxLine)
		}
		cols := strings.Split(text, "\t")
		for i := range cols {
			cols[i] = Clean(cols[i])
		}
		if !word(cols[0], "-") || len(cols[0]) > 40 {
			r.concern("the report has a line that begins with %q", clip(cols[0], 40))
			continue
		}
		r.rows[cols[0]] = append(r.rows[cols[0]], cols[1:])
	}
	return r, nil
}

func (r *report) concern(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); len(r.concerns) < maxTexts && !slices.Contains(r.concerns, text) {
		r.concerns = append(r.concerns, text)
	}
}

// all returns the rows of a key that have at least so many columns, filled up with empty ones to most.
func (r *report) all(key string, least, most, limit int) [][]string {
	r.asked[key] = true
	var out [][]string
	for _, row := range r.rows[key] {
		if len(row) < least || len(row) > most {
			r.concern("a line %q of the report has %d columns", key, len(row))
			continue
		}
		if len(out) == limit {
			r.concern("the report has more than %d lines %q; the rest is left out", limit, key)
			break
		}
		row = slices.Clone(row)
		for i := range row {
			row[i] = undash(row[i])
		}
		out = append(out, append(row, make([]string, most-len(row))...))
	}
	return out
}

// one returns the row of a key that stands once. Twice with different values, it is said and nothing is returned.
func (r *report) one(key string, least, most int) []string {
	rows := r.all(key, least, most, maxRows)
	for _, row := range rows[min(1, len(rows)):] {
		if !slices.Equal(row, rows[0]) {
			r.concern("the report contradicts itself about %q", key)
			return nil
		}
	}
	if len(rows) == 0 {
		return nil
	}
	return rows[0]
}

// text is the one value of a key, or empty.
func (r *report) text(key string) string {
	if row := r.one(key, 1, 1); row != nil {
		return row[0]
	}
	return ""
}

// texts are the values of a key, each clipped.
func (r *report) texts(key string, limit int) (out []string) {
	for _, row := range r.all(key, 1, 1, limit) {
		if row[0] != "" {
			out = append(out, clip(row[0], 500))
		}
	}
	return out
}

// number reads a whole number that is not negative.
func (r *report) number(key, text string, most int64) (int64, bool) {
	if text == "" {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > most || strings.HasPrefix(text, "+") {
		r.concern("%q of the report has the value %q, which is no number for it", key, clip(text, 40))
		return 0, false
	}
	return n, true
}

func (r *report) count(key string, most int64) (int64, bool) {
	return r.number(key, r.text(key), most)
}

// when reads seconds since 1970.
func (r *report) when(key string) time.Time {
	n, ok := r.count(key, 1<<36)
	if !ok {
		return time.Time{}
	}
	return time.Unix(n, 0).UTC()
}

// bootID reads the boot id under a key.
func (r *report) bootID(key string) string {
	id := r.text(key)
	if id != "" && (len(id) != 36 || strings.Trim(id, "0123456789abcdef-") != "") {
		r.concern("%q is no boot id", clip(id, 40))
		return ""
	}
	return id
}

// rest are the concerns, and what of the report nobody read.
func (r *report) rest() []string {
	out := append(r.texts("unread", maxTexts), r.concerns...)
	var unknown []string
	for key := range r.rows {
		if !r.asked[key] && key != "unread" {
			unknown = append(unknown, key)
		}
	}
	slices.Sort(unknown)
	if len(unknown) > 0 {
		out = append(out, "the report has lines that are not known: "+clip(strings.Join(unknown, ", "), 200))
	}
	return out
}

// Clean makes a text from outside fit for one line of any report: without control characters, those that change the direction
// of writing, invisible ones, and bytes that are no text.
func Clean(s string) string {
	plain := true
	for i := range len(s) {
		if s[i] < 0x20 || s[i] >= 0x7f {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError:
			return '?'
		case unicode.IsControl(r), r == '\u2028', r == '\u2029':
			return ' '
		case unicode.Is(unicode.Cf, r), unicode.Is(unicode.Co, r):
			return -1
		}
		return r
	}, s)
}

// clip cuts a text to at most so many bytes, at a character.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}
