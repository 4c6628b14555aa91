package ledger

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"unicode/utf8"

	"golang.org/x/mod/sumdb/tlog"
)

// ExportOptions say what Export leaves out.
type ExportOptions struct {
	Trees []Tree // nil for both
	// Omit names parts that are exported as withheld; OmitAll omits every part.
	// The export verifies all the same.
	Omit    []string
	OmitAll bool
}

const (
	exportType    = "castellan ledger export"
	exportVersion = 1
	withheld      = "withheld"
)

// Export writes the ledger as JSON lines, in the form that
// docs/ledger-format.md specifies. What is written is what is stored, sound or
// not; VerifyExport tells.
func (l *Log) Export(ctx context.Context, rows Rows, w io.Writer, o ExportOptions) error {
	trees := o.Trees
	if len(trees) == 0 {
		trees = Trees()
	}
	out := bufio.NewWriterSize(w, 1<<16)
	var writeErr error
	line := func(v map[string]any) {
		if writeErr != nil {
			return
		}
		b, err := Canonical(v)
		if err == nil {
			_, err = out.Write(append(b, '\n'))
		}
		writeErr = err
	}
	names := make([]string, len(trees))
	for i, t := range trees {
		if !t.valid() || slices.Contains(trees[:i], t) {
			return fmt.Errorf("export ledger: tree %q does not exist or is named twice", t)
		}
		names[i] = string(t)
	}
	line(map[string]any{"type": exportType, "version": exportVersion, "store": l.store,
		"exported": l.now().UTC().Format(TimeLayout), "trees": names})
	for _, tree := range trees {
		head, err := rows.Head(ctx, tree)
		if err != nil {
			return fmt.Errorf("export %s tree: %w", tree, err)
		}
		line(map[string]any{"type": "tree", "tree": string(tree), "head": valid(head.Note)})
		err = rows.Scan(ctx, tree, math.MinInt64, math.MaxInt64, func(r *Record) error {
			line(exportRecord(r, o))
			return writeErr
		})
		if err != nil {
			return fmt.Errorf("export %s tree: %w", tree, err)
		}
	}
	line(map[string]any{"type": "end"})
	if err := errors.Join(writeErr, out.Flush()); err != nil {
		return fmt.Errorf("export ledger: %w", err)
	}
	return nil
}

// valid keeps damaged bytes from making the export impossible; what was not
// UTF-8 was not written by us, and will not verify either.
func valid(s string) string { return string(bytes.ToValidUTF8([]byte(s), []byte("\uFFFD"))) }

func exportRecord(r *Record, o ExportOptions) map[string]any {
	m := map[string]any{"type": "record", "index": r.Index}
	if r.Sig != nil {
		m["sig"] = base64.StdEncoding.EncodeToString(r.Sig)
	}
	if r.Header == nil {
		leaf := r.Hashes[:min(len(r.Hashes), tlog.HashSize)]
		m["leaf"] = base64.StdEncoding.EncodeToString(leaf)
		return m
	}
	m["header"] = valid(string(r.Header))
	parts := map[string]any{}
	for _, p := range r.Parts {
		if o.OmitAll || slices.Contains(o.Omit, p.Name) {
			continue
		}
		part := map[string]any{"salt": base64.StdEncoding.EncodeToString(p.Salt[:])}
		if utf8.Valid(p.Body) && !bytes.ContainsFunc(p.Body, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' && r != '\r' }) {
			part["text"] = string(p.Body)
		} else {
			part["base64"] = base64.StdEncoding.EncodeToString(p.Body)
		}
		parts[valid(p.Name)] = part
	}
	if h, err := ParseHeader(r.Header); err == nil {
		for _, ref := range h.Parts {
			if parts[ref.Name] == nil {
				parts[ref.Name] = withheld
			}
		}
	}
	if len(parts) > 0 {
		m["parts"] = parts
	}
	return m
}

// maxLine bounds a line of an export: parts escaped or in base64, and header.
const maxLine = 64 << 20

// exportLine is any line of an export.
type exportLine struct {
	Type     string                     `json:"type"`
	Version  int                        `json:"version"`
	Store    string                     `json:"store"`
	Exported string                     `json:"exported"`
	Trees    []string                   `json:"trees"`
	Tree     Tree                       `json:"tree"`
	Head     *string                    `json:"head"`
	Index    *int64                     `json:"index"`
	Sig      *string                    `json:"sig"`
	Header   *string                    `json:"header"`
	Leaf     *string                    `json:"leaf"`
	Parts    map[string]json.RawMessage `json:"parts"`
}

func exportKeys() []string {
	return []string{"type", "version", "store", "exported", "trees", "tree", "head", "index", "sig", "header", "leaf", "parts"}
}

type exportPart struct {
	Salt   string  `json:"salt"`
	Text   *string `json:"text"`
	Base64 *string `json:"base64"`
}

// VerifyExport verifies an export with nothing but the options. As with Verify,
// a broken ledger is a result; an error means that this is no export, or one of
// a version not known here.
func VerifyExport(r io.Reader, o Options) (Result, error) {
	v, err := newVerification(o)
	if err != nil {
		return Result{}, err
	}
	lines := lineReader{r: bufio.NewReaderSize(r, 1<<16)}
	first, err := lines.next()
	if err != nil {
		return Result{}, fmt.Errorf("verify export: %w", err)
	}
	if first.Type != exportType || first.Version != exportVersion {
		return Result{}, fmt.Errorf("verify export: the first line is not that of a castellan ledger export of version %d", exportVersion)
	}
	if v.store == "" {
		v.store = first.Store
	}
	var checkers []*checker
	var c *checker
	ended := false
	for !ended {
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			break
		}
		switch {
		case err != nil && !errors.Is(err, errLine):
			return Result{}, fmt.Errorf("verify export: %w", err)
		case err == nil && line.Type == "end":
			ended = true
		case err == nil && line.Type == "tree" && line.Tree.valid() && line.Head != nil && !slices.ContainsFunc(checkers, func(c *checker) bool { return c.tree == line.Tree }):
			c = v.checker(line.Tree, *line.Head, nil)
			c.keepSigs()
			checkers = append(checkers, c)
		case c == nil:
			return Result{}, fmt.Errorf("verify export: line %d: a tree must be named before its records", lines.n)
		case err == nil && line.Type == "record" && line.Index != nil:
			rec, err := line.record()
			if err != nil {
				c.unreadable("line %d: %v", lines.n, err)
				continue
			}
			if err := c.record(rec); err != nil {
				return Result{}, err
			}
		default:
			c.unreadable("line %d of the export is not one of its forms", lines.n)
		}
	}
	if c == nil {
		return Result{}, errors.New("verify export: it names no tree")
	}
	if _, err := lines.next(); ended && !errors.Is(err, io.EOF) {
		c.unreadable("the export goes on after its end")
	}
	for _, t := range first.Trees {
		if !slices.ContainsFunc(checkers, func(c *checker) bool { return string(c.tree) == t }) {
			c.unreadable("the %s tree is announced and missing", clip(t))
		}
	}
	if !ended {
		c.unreadable("the export ends early, after line %d", lines.n)
	}
	return v.result(checkers)
}

// unreadable makes the place where the walk stands suspect.
func (c *checker) unreadable(format string, args ...any) {
	c.mark()
	c.suspectAt(suspect{index: c.next, first: c.next, seq: -1, fault: Edit}, format, args...)
	c.torn = true
}

// keepSigs makes the walk remember signatures, since a stream cannot be read
// again. It keeps the newest of them only, within bounds.
func (c *checker) keepSigs() {
	const most = 1 << 20
	type kept struct {
		size int64
		sig  []byte
	}
	var all []kept
	c.onSig = func(size int64, sig []byte) {
		if len(all) == most {
			all = append(all[:0], all[most/2:]...)
		}
		all = append(all, kept{size, sig})
	}
	c.sigs = func(from, to int64, fn func(int64, []byte)) error {
		i, _ := slices.BinarySearchFunc(all, from+1, func(k kept, size int64) int { return int(min(max(k.size-size, -1), 1)) })
		for ; i < len(all) && all[i].size <= to; i++ {
			fn(all[i].size, all[i].sig)
		}
		return nil
	}
}

func (l *exportLine) record() (*Record, error) {
	r := &Record{Index: *l.Index}
	if l.Sig != nil {
		b, err := base64.StdEncoding.Strict().DecodeString(*l.Sig)
		if err != nil {
			return nil, errors.New("the signature is not base64")
		}
		r.Sig = b
		if b == nil {
			r.Sig = []byte{}
		}
	}
	switch {
	case l.Header != nil && l.Leaf == nil:
		r.Header = []byte(*l.Header)
	case l.Leaf != nil && l.Header == nil && l.Parts == nil:
		b, err := base64.StdEncoding.Strict().DecodeString(*l.Leaf)
		if err != nil || len(b) != tlog.HashSize {
			return nil, errors.New("the leaf hash is not 32 bytes in base64")
		}
		r.Hashes = b
		return r, nil
	default:
		return nil, errors.New("a record has either a header or a leaf hash")
	}
	for name, raw := range l.Parts {
		var word string
		if json.Unmarshal(raw, &word) == nil {
			if word != withheld {
				return nil, fmt.Errorf("part %q is neither there nor withheld", clip(name))
			}
			continue
		}
		var p exportPart
		if err := strictJSON(raw, &p); err != nil || (p.Text == nil) == (p.Base64 == nil) {
			return nil, fmt.Errorf("part %q has not the form of a part", clip(name))
		}
		salt, err := base64.StdEncoding.Strict().DecodeString(p.Salt)
		if err != nil || len(salt) != 32 {
			return nil, fmt.Errorf("the salt of part %q is not 32 bytes in base64", clip(name))
		}
		part := Part{Name: name, Salt: [32]byte(salt)}
		if p.Text != nil {
			part.Body = []byte(*p.Text)
		} else if part.Body, err = base64.StdEncoding.Strict().DecodeString(*p.Base64); err != nil {
			return nil, fmt.Errorf("part %q is not base64", clip(name))
		}
		r.Parts = append(r.Parts, part)
	}
	slices.SortFunc(r.Parts, func(a, b Part) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return r, nil
}

// errLine says that a line is not of the form of an export.
var errLine = errors.New("malformed line")

// lineReader reads canonical JSON lines of bounded length.
type lineReader struct {
	r *bufio.Reader
	n int
}

func (l *lineReader) next() (exportLine, error) {
	var line []byte
	for {
		piece, err := l.r.ReadSlice('\n')
		line = append(line, piece...)
		if len(line) > maxLine {
			return exportLine{}, fmt.Errorf("line %d is longer than %d bytes", l.n+1, maxLine)
		}
		if err == nil {
			break
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return exportLine{}, io.EOF
		}
		if errors.Is(err, io.EOF) {
			l.n++
			return exportLine{}, fmt.Errorf("%w: line %d is cut off", errLine, l.n)
		}
		return exportLine{}, fmt.Errorf("read line %d: %w", l.n+1, err)
	}
	l.n++
	line = line[:len(line)-1]
	// Canonical form leaves no room for a second reading: no key twice, no
	// other spelling.
	s := scanner{b: line}
	if s.object(func(key []byte, _ bool) error {
		// The decoder would take other spellings of a key, too.
		if !slices.Contains(exportKeys(), string(key)) {
			return errCanonical
		}
		return s.value(1)
	}) != nil || s.i != len(line) {
		return exportLine{}, fmt.Errorf("%w: line %d is not canonical JSON of known keys", errLine, l.n)
	}
	var out exportLine
	if err := strictJSON(line, &out); err != nil {
		return exportLine{}, fmt.Errorf("%w: line %d: %w", errLine, l.n, err)
	}
	return out, nil
}

func strictJSON(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode(v)
}
