package ledger_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"castellan/internal/ledger"
	"castellan/internal/ledger/ledgertest"
)

func exportTo(t testing.TB, db ledgertest.DB, w io.Writer, o ledger.ExportOptions) {
	t.Helper()
	if err := db.View(background, func(r ledgertest.Rows) error {
		return ledgertest.Log(t).Export(background, r, w, o)
	}); err != nil {
		t.Fatal(err)
	}
}

func verifyExport(t testing.TB, b []byte, o ledger.Options) ledger.Result {
	t.Helper()
	if o.Keys == nil {
		o.Keys = []ed25519.PublicKey{pub("test")}
	}
	res, err := ledger.VerifyExport(bytes.NewReader(b), o)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// second collects exports for the second verifier, which was written from the
// specification in another language and is started once for all of them.
type second struct {
	dir   string
	paths []string
	want  []ledger.Result
}

func (p *second) add(t testing.TB, export []byte, want ledger.Result) {
	t.Helper()
	if p.dir == "" {
		dir, err := os.MkdirTemp("", "exports")
		if err != nil {
			t.Fatal(err)
		}
		p.dir = dir
	}
	path := filepath.Join(p.dir, fmt.Sprintf("%03d-%s.jsonl", len(p.paths), filepath.Base(t.Name())))
	if err := os.WriteFile(path, export, 0o600); err != nil {
		t.Fatal(err)
	}
	p.paths, p.want = append(p.paths, path), append(p.want, want)
}

// check compares the judgements on all exports, and names of broken records.
func (p *second) check(t *testing.T, heads ...string) {
	t.Helper()
	defer os.RemoveAll(p.dir)
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Log("no python3 here: the second verifier was not run")
		return
	}
	args := []string{"testdata/verify.py", "--key", ledger.FormatKey("test", ledger.Write, pub("test"))}
	for i, h := range heads {
		path := filepath.Join(p.dir, fmt.Sprint("head", i))
		if err := os.WriteFile(path, []byte(h), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--head", path)
	}
	out, err := exec.Command(python, append(args, p.paths...)...).Output()
	d := json.NewDecoder(bytes.NewReader(out))
	for i, want := range p.want {
		var got ledger.Result
		if e := d.Decode(&got); e != nil {
			t.Fatalf("second verifier, %s: %v, %v: %s", p.paths[i], err, e, out)
		}
		name := filepath.Base(p.paths[i])
		if got.OK != want.OK || got.Size != want.Size || got.Head != want.Head {
			t.Errorf("%s: the second verifier says %+v %+v, we say %+v %+v", name, got, got.Broken, want, want.Broken)
		} else if !want.OK && (got.Broken.Tree != want.Broken.Tree || got.Broken.Index != want.Broken.Index ||
			strings.SplitN(got.Broken.Reason, ":", 2)[0] != string(want.Broken.Fault)) {
			t.Errorf("%s: the second verifier says %+v, we say %+v", name, *got.Broken, *want.Broken)
		}
	}
}

func TestExport(t *testing.T) {
	s := filled(t)
	var python, pinned second
	var out bytes.Buffer
	exportTo(t, s, &out, ledger.ExportOptions{})
	whole := verifyExport(t, out.Bytes(), ledger.Options{})
	if !whole.OK || whole.Size != 25 || whole.Trees[ledger.Read].Size != 8 || whole.Head != head(t, s, ledger.Write) {
		t.Errorf("%+v %+v", whole, whole.Broken)
	}
	python.add(t, out.Bytes(), whole)

	out.Reset()
	exportTo(t, s, &out, ledger.ExportOptions{OmitAll: true})
	res := verifyExport(t, out.Bytes(), ledger.Options{Heads: []string{whole.Head}})
	if !res.OK || res.Trees[ledger.Write].Withheld.Parts == 0 || strings.Contains(out.String(), "output of") {
		t.Errorf("without parts: %+v %+v", res, res.Broken)
	}
	pinned.add(t, out.Bytes(), res)
	pinned.check(t, whole.Head)

	out.Reset()
	exportTo(t, s, &out, ledger.ExportOptions{Trees: []ledger.Tree{ledger.Read}, Omit: []string{"output"}})
	if res := verifyExport(t, out.Bytes(), ledger.Options{}); !res.OK || res.Trees[ledger.Read].Size != 8 {
		t.Errorf("read tree alone: %+v %+v", res, res.Broken)
	}
	if res := verifyExport(t, out.Bytes(), ledger.Options{Keys: []ed25519.PublicKey{pub("other")}}); res.OK || res.Broken.Fault != ledger.WrongKey {
		t.Errorf("wrong key: %+v", res.Broken)
	}
	python.check(t)
}

// TestExportHoldsAnything: bodies that are no text, empty logs, and a log with
// every record swept come through.
func TestExportHoldsAnything(t *testing.T) {
	db, l := ledgertest.NewMemory(), ledgertest.Log(t)
	var out bytes.Buffer
	exportTo(t, db, &out, ledger.ExportOptions{})
	if res := verifyExport(t, out.Bytes(), ledger.Options{}); !res.OK || res.Size != 0 {
		t.Errorf("empty: %+v %+v", res, res.Broken)
	}
	bodies := []string{"", "\x00\xff", "plain", "new\nline\ttab", "\x1b[31mred", "\u2028\ufffd\"\\", "{\"a\":1}", "withheld"}
	e := ledgertest.Entry(1)
	e.Actor, e.Target = "\xff\x1b[0m\u2028", strings.Repeat("é", 2000)
	e.Data = map[string]any{"big": int64(1) << 60, "nested": map[string]any{"é": []any{nil, true, "\x00"}, "\U0001F600": 1, "\uE000": 2}}
	for i, b := range bodies {
		e.Parts = append(e.Parts, ledger.Part{Name: string(rune('a' + i)), Body: []byte(b)})
	}
	if err := db.Update(background, func(r ledgertest.Rows) error {
		_, err := l.Append(background, r, ledger.Write, e)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	exportTo(t, db, &out, ledger.ExportOptions{})
	res := verifyExport(t, out.Bytes(), ledger.Options{})
	if !res.OK || res.Trees[ledger.Write].Withheld.Parts != 0 {
		t.Errorf("%+v %+v\n%s", res, res.Broken, out.String())
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("the export holds control characters")
	}
	var python second
	python.add(t, out.Bytes(), res)
	python.check(t)
}

// TestExportAttacked changes the text of an export.
func TestExportAttacked(t *testing.T) {
	s := filled(t)
	var out bytes.Buffer
	exportTo(t, s, &out, ledger.ExportOptions{})
	lines := strings.SplitAfter(strings.TrimSuffix(out.String(), "\n"), "\n")
	lines[len(lines)-1] += "\n"
	var python second
	record := func(i int) int { return 2 + i } // line of record i of the write tree
	for _, a := range []struct {
		name  string
		do    func(l []string) []string
		index int64
		fault ledger.Fault
	}{
		{"line edited", func(l []string) []string {
			l[record(5)] = strings.Replace(l[record(5)], `\"rung\":\"none\"`, `\"rung\":\"nope\"`, 1)
			return l
		}, 5, ledger.Edit},
		{"part edited", func(l []string) []string {
			l[record(6)] = strings.Replace(l[record(6)], "output of 6", "output of 7", 1)
			return l
		}, 6, ledger.Edit},
		{"part added", func(l []string) []string {
			l[record(5)] = strings.Replace(l[record(5)], `"type":"record"`, `"parts":{"x":"withheld"},"type":"record"`, 1)
			return l
		}, 5, ledger.Edit},
		{"lines swapped", func(l []string) []string { l[record(5)], l[record(6)] = l[record(6)], l[record(5)]; return l }, 5, ledger.Reorder},
		{"line removed", func(l []string) []string { return append(l[:record(5)], l[record(6):]...) }, 5, ledger.Removal},
		{"line doubled", func(l []string) []string {
			return append(l[:record(6)], append([]string{l[record(5)]}, l[record(6):]...)...)
		}, 5, ledger.Insertion},
		{"newest lines removed", func(l []string) []string { return append(l[:record(20)], l[record(25):]...) }, 20, ledger.Truncation},
		{"line made unreadable", func(l []string) []string { l[record(5)] = "{\n"; return l }, 5, ledger.Edit},
		{"line with a key twice", func(l []string) []string {
			l[record(5)] = strings.Replace(l[record(5)], `{"`, `{"header":"x","`, 1)
			return l
		}, 5, ledger.Edit},
		{"line with a foreign key", func(l []string) []string {
			l[record(5)] = strings.Replace(l[record(5)], `"type"`, `"note":"x","type"`, 1)
			return l
		}, 5, ledger.Edit},
		{"end removed", func(l []string) []string { return l[:len(l)-1] }, 8, ledger.Edit},
		{"read tree removed", func(l []string) []string { return append(l[:record(25)], l[len(l)-1]) }, 25, ledger.Edit},
	} {
		t.Run(a.name, func(t *testing.T) {
			changed := strings.Join(a.do(append([]string(nil), lines...)), "")
			if changed == out.String() {
				t.Fatal("nothing was changed")
			}
			res := verifyExport(t, []byte(changed), ledger.Options{})
			if res.OK || res.Broken.Index != a.index || res.Broken.Fault != a.fault {
				t.Errorf("got %+v, want %s at %d", res.Broken, a.fault, a.index)
			}
			python.add(t, []byte(changed), res)
		})
	}
	python.check(t)
	for _, no := range []string{"", "{}\n", "hello\n", strings.Replace(out.String(), `"version":1`, `"version":2`, 1)} {
		if _, err := ledger.VerifyExport(strings.NewReader(no), ledger.Options{Keys: []ed25519.PublicKey{pub("test")}}); err == nil {
			t.Errorf("%.20q was taken for an export", no)
		}
	}
}

// TestExportNoticesEveryByte: of an export no single byte of records can change
// without being noticed.
func TestExportNoticesEveryByte(t *testing.T) {
	db, l := ledgertest.NewMemory(), ledgertest.Log(t)
	ledgertest.Fill(t, db, l, ledger.Write, 4)
	var out bytes.Buffer
	exportTo(t, db, &out, ledger.ExportOptions{})
	b := out.Bytes()
	var unnoticed int
	for i := bytes.IndexByte(b, '\n') + 1; i < len(b); i++ {
		c := bytes.Clone(b)
		c[i] ^= 1
		res, err := ledger.VerifyExport(bytes.NewReader(c), ledger.Options{Keys: []ed25519.PublicKey{pub("test")}})
		if err == nil && res.OK {
			unnoticed++
			// Only the key id and signature of an earlier head are not looked
			// at while the last one holds: 136 of 100 bytes in base64, the first
			// 43 of which hold the root.
			sig := bytes.LastIndex(b[:i], []byte(`"sig":"`))
			if at := i - sig - len(`"sig":"`); sig < 0 || at < 42 || at >= 136 {
				t.Errorf("byte %d: ...%s[%c]", i, b[max(0, i-40):i], b[i])
			}
		}
	}
	t.Logf("%d of %d bytes unnoticed", unnoticed, len(b))
}

func FuzzVerifyExport(f *testing.F) {
	db, l := ledgertest.NewMemory(), ledgertest.Log(f)
	ledgertest.Fill(f, db, l, ledger.Write, 3)
	ledgertest.Fill(f, db, l, ledger.Read, 2)
	var out bytes.Buffer
	exportTo(f, db, &out, ledger.ExportOptions{})
	f.Add(out.Bytes())
	f.Add([]byte(`{"type":"castellan ledger export","version":1}` + "\n"))
	good := verifyExport(f, out.Bytes(), ledger.Options{})
	f.Fuzz(func(t *testing.T, b []byte) {
		res, err := ledger.VerifyExport(bytes.NewReader(b), ledger.Options{Keys: []ed25519.PublicKey{pub("test")}})
		// Whatever verifies with a record in it is the log that was signed, or
		// an earlier state of it.
		if err == nil && res.OK && res.Size > good.Size {
			t.Fatalf("forged: %s", b)
		}
	})
}
