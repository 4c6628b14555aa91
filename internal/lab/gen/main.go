// Command gen turns a folder of recorded genuine answers into the compact table of expectations that the lab's
// tests carry: request, status line, error text and the shape (keys and types) of the data.
//
//	go run castellan/internal/lab/gen RECORDS testdata/expect.json.gz
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// record is one recorded call, alone or as a step of a flow.
type record struct {
	Name        string
	As          string
	Request     string
	Body        *string
	ContentType string            `json:"content_type"`
	StatusLine  string            `json:"status_line"`
	Answer      any               `json:"answer"`
	Step        int               `json:"step"`
	At          float64           `json:"at"`
	Uses        map[string]string `json:"uses"`
	Wait        string            `json:"wait"`
	Note        string            `json:"note"`
}

// expectation is the compact form.
type expectation struct {
	As     string  `json:"a,omitempty"`
	Req    string  `json:"r"`
	Body   *string `json:"b,omitempty"`
	Type   string  `json:"t,omitempty"`
	Status string  `json:"s"`           // without the protocol
	Text   string  `json:"x,omitempty"` // message and errors of a failure
	Shape  any     `json:"d,omitempty"` // of a success
	Step   int     `json:"n,omitempty"`
	At     float64 `json:"w,omitempty"` // seconds since the flow began
	Task   bool    `json:"k,omitempty"` // the answer is a task that was waited for
	Stale  bool    `json:"o,omitempty"` // sent with a secret that is no longer good
	Uses   []use   `json:"u,omitempty"`
}

// use is a value in a request that came out of an earlier answer.
type use struct {
	From string `json:"f"`
	Step int    `json:"n"`
	Path string `json:"p"`
	Part bool   `json:"x,omitempty"` // only a part of the text there
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: gen RECORDS FILE")
	}
	dir := args[0]
	out := struct {
		Fresh []expectation   `json:"fresh"`
		Flows [][]expectation `json:"flows"`
	}{}
	list, err := os.ReadFile(filepath.Join(dir, "fresh.txt"))
	if err != nil {
		return err
	}
	files := map[string]map[string]record{}
	for _, line := range strings.Split(strings.TrimSpace(string(list)), "\n") {
		file, name, _ := strings.Cut(line, "\t")
		if files[file] == nil {
			var recs []record
			if err := read(filepath.Join(dir, file+".json"), &recs); err != nil {
				return err
			}
			files[file] = map[string]record{}
			for _, r := range recs {
				if _, dup := files[file][r.Name]; !dup {
					files[file][r.Name] = r
				}
			}
		}
		out.Fresh = append(out.Fresh, compact(files[file][name], nil))
	}
	flows, err := filepath.Glob(filepath.Join(dir, "flows", "*.json"))
	if err != nil {
		return err
	}
	for _, f := range flows {
		var flow struct{ Steps []record }
		if err := read(f, &flow); err != nil {
			return err
		}
		answers := map[int]any{}
		var steps []expectation
		for _, r := range flow.Steps {
			steps = append(steps, compact(r, answers))
			answers[r.Step] = r.Answer
		}
		out.Flows = append(out.Flows, steps)
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(z).Encode(out); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(args[1], b.Bytes(), 0o644)
}

func read(file string, into any) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

func compact(r record, answers map[int]any) expectation {
	e := expectation{As: r.As, Req: r.Request, Body: r.Body, Type: r.ContentType, Status: strings.TrimPrefix(r.StatusLine, "HTTP/1.1 "), Step: r.Step, At: r.At, Task: r.Wait == "task", Stale: strings.Contains(r.Note, "old secret")}
	if len(r.Request) > 2000 { // one over-long address is as good as another
		e.Req = r.Request[:2000]
	}
	m, isObject := r.Answer.(map[string]any)
	switch {
	case !strings.HasPrefix(e.Status, "200") && isObject:
		t, err := json.Marshal([]any{m["message"], m["errors"]})
		if err == nil {
			e.Text = string(t)
		}
	case !strings.HasPrefix(e.Status, "200"):
		e.Text, _ = r.Answer.(string)
	case isObject:
		e.Shape = shape(r.Answer)
	}
	for from, where := range r.Uses {
		n, path, _ := strings.Cut(strings.TrimPrefix(where, "step "), " ")
		step, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		e.Uses = append(e.Uses, use{From: from, Step: step, Path: path, Part: walk(answers[step], path) != from})
	}
	sort.Slice(e.Uses, func(i, j int) bool { return e.Uses[i].From < e.Uses[j].From })
	return e
}

func walk(a any, path string) string {
	for _, p := range strings.Split(path, "/") {
		switch t := a.(type) {
		case map[string]any:
			a = t[p]
		case []any:
			i, err := strconv.Atoi(p)
			if err != nil || i >= len(t) {
				return ""
			}
			a = t[i]
		}
	}
	s, _ := a.(string)
	return s
}

// shape is a value's keys and types: s, n, b, z for text, number, boolean and null; lists hold each shape once.
func shape(v any) any {
	switch t := v.(type) {
	case nil:
		return "z"
	case string:
		return "s"
	case float64:
		return "n"
	case bool:
		return "b"
	case map[string]any:
		m := map[string]any{}
		for k, x := range t {
			m[k] = shape(x)
		}
		return m
	case []any:
		seen := map[string]bool{}
		l := []any{}
		for _, x := range t {
			s := shape(x)
			b, err := json.Marshal(s)
			if err == nil && !seen[string(b)] {
				seen[string(b)] = true
				l = append(l, s)
			}
		}
		return l
	}
	return "?"
}
