package lab

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"castellan/internal/catalog/facts"
)

// recordsDir is the folder of genuine answers, "" when this machine has none.
func recordsDir() string {
	dir := os.Getenv("CASTELLAN_RECORDS")
	if _, err := os.Stat(filepath.Join(dir, "fresh.txt")); err != nil {
		return ""
	}
	return dir
}

// record is one genuine answer, of a single call or a step of a flow.
type record struct {
	Name        string
	As          string
	Request     string
	Body        *string
	ContentType string            `json:"content_type"`
	StatusLine  string            `json:"status_line"`
	Answer      json.RawMessage   `json:"answer"`
	Shortened   json.RawMessage   `json:"_shortened"`
	Step        int               `json:"step"`
	At          float64           `json:"at"`
	Seconds     float64           `json:"seconds"`
	Uses        map[string]string `json:"uses"`
	Wait        string            `json:"wait"`
	Note        string            `json:"note"`
}

func rigSecret(as string) string {
	return map[string]string{
		"root@pam!full": "11111111-1111-4111-8111-111111111111", "audit@pve!ro": "22222222-2222-4222-8222-222222222222", "vmadmin@pve!vm": "33333333-3333-4333-8333-333333333333",
		"limited@pve!one": "44444444-4444-4444-8444-444444444444", "nobody@pve!none": "55555555-5555-4555-8555-555555555555", "root@pam!sep": "66666666-6666-4666-8666-666666666666",
	}[as]
}

// got is an answer of the lab beside a genuine one.
type got struct {
	line   string
	answer any
}

func send(l *Lab, as, secret, req string, body *string, ctype string) got {
	method, target, _ := strings.Cut(req, " ")
	h := http.Header{}
	if as != "" && as != "no token" {
		if secret == "" {
			secret = rigSecret(as)
		}
		h.Set("Authorization", "PVEAPIToken="+as+"="+secret)
	}
	var b []byte
	if body != nil {
		b = []byte(*body)
		if ctype == "" {
			switch {
			case strings.HasPrefix(*body, "{") || strings.HasPrefix(*body, "["):
				ctype = "application/json"
			case strings.Contains(*body, "Content-Disposition: form-data"):
				first, _, _ := strings.Cut(strings.TrimLeft(*body, "\r\n"), "\n")
				ctype = "multipart/form-data; boundary=" + strings.TrimPrefix(strings.TrimSpace(first), "--")
			default:
				ctype = "application/x-www-form-urlencoded"
			}
		}
		h.Set("Content-Type", ctype)
	}
	st, reason, raw := l.Do(context.Background(), method, target, h, b)
	g := got{line: fmt.Sprintf("HTTP/1.1 %d %s", st, reason)}
	if len(raw) > 2 && raw[0] == 0x1f && raw[1] == 0x8b {
		if z, err := gzip.NewReader(bytes.NewReader(raw)); err == nil {
			if b, err := io.ReadAll(z); err == nil {
				raw = b
			}
		}
	}
	if json.Unmarshal(raw, &g.answer) != nil {
		g.answer = string(raw)
	}
	return g
}

func kindOf(v any) string {
	switch t := v.(type) {
	case nil:
		return "null"
	case bool:
		return "bool"
	case string:
		return "string"
	case float64:
		return "number"
	case []any:
		return "list"
	case map[string]any:
		return "object"
	default:
		return fmt.Sprintf("%T", t)
	}
}

// shapeDiff tells where two answers differ in keys and types. Lists compare as sets of elements: each genuine
// element must have one of the same shape.
func shapeDiff(path string, want, have any, strict bool, out *[]string) {
	if kindOf(want) != kindOf(have) {
		*out = append(*out, fmt.Sprintf("%s: %s, want %s", path, kindOf(have), kindOf(want)))
		return
	}
	switch w := want.(type) {
	case map[string]any:
		h := have.(map[string]any)
		for k, v := range w {
			x, ok := h[k]
			if !ok {
				if strict {
					*out = append(*out, path+"/"+k+": missing")
				}
				continue
			}
			shapeDiff(path+"/"+k, v, x, strict, out)
		}
		if strict {
			for k := range h {
				if _, ok := w[k]; !ok {
					*out = append(*out, path+"/"+k+": not in the genuine answer")
				}
			}
		}
	case []any:
		h := have.([]any)
		if strict && (len(w) == 0) != (len(h) == 0) {
			*out = append(*out, fmt.Sprintf("%s: %d elements, want %d", path, len(h), len(w)))
			return
		}
		if len(h) == 0 {
			return
		}
		for i, v := range w {
			best := []string(nil)
			for j, x := range h {
				var d []string
				shapeDiff(fmt.Sprintf("%s[%d]", path, i), v, x, strict, &d)
				if j == 0 || len(d) < len(best) {
					best = d
				}
				if len(d) == 0 {
					break
				}
			}
			*out = append(*out, best...)
		}
	}
}

// errorText is what a failed answer says.
func errorText(a any) string {
	m, ok := a.(map[string]any)
	if !ok {
		t, _ := a.(string)
		return t
	}
	b, err := json.Marshal([]any{m["message"], m["errors"]})
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// compare gives the differences in status line and text, and those in shape.
func compare(r record, g got, strict bool) (text, shape []string) {
	var want any
	if err := json.Unmarshal(r.Answer, &want); err != nil {
		return []string{"unreadable record"}, nil
	}
	if r.StatusLine != g.line {
		text = append(text, fmt.Sprintf("status %q, want %q", g.line, r.StatusLine))
	}
	if !strings.HasPrefix(r.StatusLine, "HTTP/1.1 200") {
		if w, h := errorText(want), errorText(g.answer); w != h {
			text = append(text, fmt.Sprintf("text %s, want %s", h, w))
		}
		return text, nil
	}
	if kindOf(want) == "string" { // not JSON
		return text, nil
	}
	if len(text) == 0 {
		shapeDiff("", want, g.answer, strict, &shape)
	}
	return text, shape
}

func loadRecords(t *testing.T, file string) []record {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var list []record
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// sharedFacts decodes the API description once for all tests.
var sharedFacts = sync.OnceValue(facts.Open)

func rigLab(t *testing.T, delays bool, clock func() time.Time) *Lab {
	t.Helper()
	l, err := New(Config{Site: "rig", Delays: delays, Clock: clock, Facts: sharedFacts()})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// manual is a clock that tests set.
type manual struct{ t time.Time }

func (m *manual) now() time.Time { return m.t }

func TestReplayFresh(t *testing.T) {
	dir := recordsDir()
	if dir == "" {
		t.Skip("no records here")
	}
	list, err := os.ReadFile(filepath.Join(dir, "fresh.txt"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]map[string]record{}
	total, okText, okShape, okKeys := 0, 0, 0, 0
	only := os.Getenv("CASTELLAN_ONLY")
	for _, line := range strings.Split(strings.TrimSpace(string(list)), "\n") {
		file, name, _ := strings.Cut(line, "\t")
		if files[file] == nil {
			files[file] = map[string]record{}
			for _, r := range loadRecords(t, filepath.Join(dir, file+".json")) {
				if _, dup := files[file][r.Name]; !dup {
					files[file][r.Name] = r
				}
			}
		}
		r, ok := files[file][name]
		if !ok {
			t.Errorf("%s/%s: no such record", file, name)
			continue
		}
		if only != "" && !strings.Contains(name, only) {
			continue
		}
		total++
		l := rigLab(t, false, nil)
		g := send(l, r.As, "", r.Request, r.Body, "")
		text, loose := compare(r, g, false)
		_, strict := compare(r, g, true)
		if len(text) == 0 {
			okText++
			if len(loose) == 0 {
				okShape++
			}
			if len(strict) == 0 {
				okKeys++
			}
		}
		sort.Strings(strict)
		switch {
		case len(text) > 0:
			t.Logf("TEXT %s/%s %s: %s", file, name, r.Request, strings.Join(text, "; "))
		case len(loose) > 0:
			t.Logf("TYPE %s/%s %s: %s", file, name, r.Request, strings.Join(loose, "; "))
		case len(strict) > 0:
			t.Logf("keys %s/%s %s: %s", file, name, r.Request, strings.Join(strict, "; "))
		}
	}
	t.Logf("%d fresh records: status and text agree in %d, types too in %d, every key in %d", total, okText, okShape, okKeys)
	if only == "" && okShape*100 < total*98 {
		t.Errorf("only %d of %d agree", okShape, total)
	}
}

var wordForm = regexp.MustCompile(`UPID:\S+:|[0-9a-f]{40}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?i:[0-9a-f]{2}:){5}[0-9a-fA-F]{2}|vzdump-(?:lxc|qemu)-\d+-\d{4}_\d\d_\d\d-\d\d_\d\d_\d\d`)

// walk follows step/key/index into an answer.
func walk(a any, path string) string {
	for _, p := range strings.Split(path, "/") {
		switch t := a.(type) {
		case map[string]any:
			a = t[p]
		case []any:
			var i int
			if _, err := fmt.Sscan(p, &i); err != nil || i >= len(t) {
				return ""
			}
			a = t[i]
		}
	}
	s, _ := a.(string)
	return s
}

// replayFlow sends a flow's steps at their times and gives how many agree.
func replayFlow(t *testing.T, file string, verbose bool) (ok, total int) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var flow struct{ Steps []record }
	if err := json.Unmarshal(b, &flow); err != nil {
		t.Fatal(err)
	}
	clk := &manual{t: time.Date(2026, 11, 29, 13, 0, 0, 0, time.UTC)}
	l := rigLab(t, true, clk.now)
	start := clk.t.Add(20 * time.Second)
	late := time.Duration(0)    // how far waiting for tasks has pushed us behind the recording
	swap := map[string]string{} // genuine value → ours
	secrets := map[string]string{}
	answers := map[int]any{}
	genuine := map[int]any{}
	wait := time.Time{}
	for _, r := range flow.Steps {
		clk.t = start.Add(late + time.Duration(r.At*float64(time.Second)))
		if clk.t.Before(wait) {
			late += wait.Sub(clk.t)
			clk.t = wait
		}
		req := r.Request
		body := r.Body
		for from := range r.Uses {
			where := r.Uses[from]
			to := swap[from]
			var n int
			var path string
			if _, err := fmt.Sscanf(where, "step %d %s", &n, &path); err == nil {
				old, now := walk(genuine[n], path), walk(answers[n], path)
				if now != "" && old == from {
					to = now
				} else if w := wordForm.FindString(now); w != "" {
					to = w
				}
			}
			if to == "" {
				continue
			}
			req = strings.ReplaceAll(req, from, to)
			req = strings.ReplaceAll(req, url.QueryEscape(from), url.QueryEscape(to))
			if body != nil {
				x := strings.ReplaceAll(*body, from, to)
				x = strings.ReplaceAll(x, url.QueryEscape(from), url.QueryEscape(to))
				body = &x
			}
		}
		secret := secrets[r.As]
		if strings.Contains(r.Note, "old secret") {
			secret = "00000000-0000-4000-8000-000000000000"
		}
		g := sendTimed(l, clk, r.As, secret, req, body, r.ContentType)
		var want any
		if err := json.Unmarshal(r.Answer, &want); err != nil {
			t.Fatal(err)
		}
		answers[r.Step], genuine[r.Step] = g.answer, want
		if m, ok := g.answer.(map[string]any); ok {
			if d, ok := m["data"].(map[string]any); ok {
				id, _ := d["full-tokenid"].(string)
				v, _ := d["value"].(string)
				if id != "" && v != "" {
					secrets[id] = v
				}
			}
		}
		if m, ok := g.answer.(map[string]any); ok && r.Wait == "task" {
			upid, _ := m["data"].(string)
			if task := l.s.byUPID[upid]; task != nil {
				for i := 0; i < 600 && !task.done; i++ {
					clk.t = clk.t.Add(200 * time.Millisecond)
					l.Advance(0)
				}
				wait = clk.t
			}
		}
		total++
		diff := stepDiff(r, g, want)
		if len(diff) == 0 {
			ok++
		} else if verbose {
			t.Logf("%s step %d @%.1f %s %s: %s", filepath.Base(file), r.Step, r.At, r.Request, deref(r.Body), strings.Join(diff, "; "))
		}
	}
	return ok, total
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// sendTimed answers without sleeping: the clock is a test's.
func sendTimed(l *Lab, clk *manual, as, secret, req string, body *string, ctype string) got {
	l.cfg.Delays = false // answers come at once; what is under way keeps its time
	defer func() { l.cfg.Delays = true }()
	return send(l, as, secret, req, body, ctype)
}

var volatileKeys = map[string]bool{"upid": true, "pid": true, "pstart": true, "starttime": true, "endtime": true, "digest": true, "ctime": true, "used": true, "disk": true, "cpu": true, "mem": true, "memhost": true, "uptime": true,
	"netin": true, "netout": true, "diskread": true, "diskwrite": true, "maxdisk": true, "smbios1": true, "vmgenid": true, "meta": true, "snaptime": true, "net0": true, "hwaddr": true, "hardware-address": true, "value": false,
	"avail": true, "total": true, "used_fraction": true, "timestamp": true, "size": true, "running-machine": true, "running-qemu": true, "volid": false, "blockstat": true, "nics": true, "proxmox-support": true, "next-run": true, "time": true, "loadavg": true}

// stepDiff compares values too, apart from those that no two sites share.
func stepDiff(r record, g got, want any) []string {
	text, _ := compare(r, g, true)
	if len(text) > 0 || !strings.HasPrefix(r.StatusLine, "HTTP/1.1 200") {
		return text
	}
	if kindOf(want) == "string" {
		return nil
	}
	w, _ := want.(map[string]any)
	h, _ := g.answer.(map[string]any)
	isLog := strings.Contains(r.Request, "/log?") || strings.HasSuffix(r.Request, "/log")
	var out []string
	if isLog {
		return logDiff(w["data"], h["data"])
	}
	valueDiff("", w["data"], h["data"], &out)
	return out
}

var mask = []struct {
	re *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`UPID:\S+`), "UPID"}, {regexp.MustCompile(`[0-9a-f]{40}`), "DIGEST"}, {regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`(?i)([0-9a-f]{2}:){5}[0-9a-f]{2}`), "MAC"}, {regexp.MustCompile(`\d{4}_\d\d_\d\d-\d\d_\d\d_\d\d`), "STAMP"}, {regexp.MustCompile(`ctime=\d+`), "CTIME"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`), "TIME"}, {regexp.MustCompile(`\d\d:\d\d:\d\d`), "CLOCK"}, {regexp.MustCompile(`creation-qemu=[\d.]+`), "QEMU"}, {regexp.MustCompile(`backup-[0-9a-f]{8}-[0-9a-f]{4}`), "JOB"},
	{regexp.MustCompile(`vzdumptmp\d+`), "TMP"}, {regexp.MustCompile(`^(sent|total size is|Total bytes (sent|received):).*`), "RSYNC"},
	{regexp.MustCompile(`[\d.]+ ?(MiB|KiB|GiB|MB|KB|B)(/s)?`), "SIZE"}, {regexp.MustCompile(`\b\d{5,}\b`), "NUM"},
	{regexp.MustCompile(`(Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} +\d+ CLOCK \d{4}`), "DATE"},
}

func masked(s string) string {
	for _, m := range mask {
		s = m.re.ReplaceAllString(s, m.to)
	}
	return s
}

func logDiff(want, have any) []string {
	lines := func(a any) []string {
		var out []string
		l, _ := a.([]any)
		for _, x := range l {
			m, _ := x.(map[string]any)
			t, _ := m["t"].(string)
			t = masked(t)
			if strings.HasPrefix(t, "INFO: starting new backup job: ") {
				words := strings.Split(strings.ReplaceAll(t, " --", "\x00"), "\x00")
				sort.Strings(words)
				t = strings.Join(words, " --")
			}
			if t == "Filesystem UUID: UUID" || strings.Contains(t, "Total bytes") || strings.HasPrefix(t, "transferred ") {
				t = strings.SplitN(t, ":", 2)[0]
			}
			if strings.HasPrefix(t, "transferred ") {
				continue
			}
			out = append(out, t)
		}
		return out
	}
	w, h := lines(want), lines(have)
	for i := range w {
		if i >= len(h) || w[i] != h[i] {
			x := "(end)"
			if i < len(h) {
				x = h[i]
			}
			return []string{fmt.Sprintf("log line %d %q, want %q (%d lines, want %d)", i+1, x, w[i], len(h), len(w))}
		}
	}
	if len(h) != len(w) {
		return []string{fmt.Sprintf("log has %d lines more: %q", len(h)-len(w), h[len(w)])}
	}
	return nil
}

func valueDiff(path string, want, have any, out *[]string) {
	if kindOf(want) != kindOf(have) {
		*out = append(*out, fmt.Sprintf("%s: %s, want %s", path, show(have), show(want)))
		return
	}
	switch w := want.(type) {
	case map[string]any:
		h := have.(map[string]any)
		if key, ok := w["key"].(string); ok && volatileKeys[key] {
			w, h = copyWithout(w, "value"), copyWithout(h, "value")
		}
		for k, v := range w {
			x, ok := h[k]
			if !ok {
				*out = append(*out, path+"/"+k+": missing")
				continue
			}
			if volatileKeys[k] {
				if kindOf(v) != kindOf(x) {
					*out = append(*out, fmt.Sprintf("%s/%s: %s, want %s", path, k, kindOf(x), kindOf(v)))
				}
				continue
			}
			valueDiff(path+"/"+k, v, x, out)
		}
		for k := range h {
			if _, ok := w[k]; !ok {
				*out = append(*out, path+"/"+k+": not in the genuine answer")
			}
		}
	case []any:
		h := have.([]any)
		if len(h) != len(w) {
			*out = append(*out, fmt.Sprintf("%s: %d elements, want %d", path, len(h), len(w)))
			return
		}
		used := map[int]bool{}
		for i, v := range w {
			best, at := []string(nil), -1
			for j, x := range h {
				if used[j] {
					continue
				}
				var d []string
				valueDiff(fmt.Sprintf("%s[%d]", path, i), v, x, &d)
				if at < 0 || len(d) < len(best) {
					best, at = d, j
				}
				if len(d) == 0 {
					break
				}
			}
			used[at] = true
			*out = append(*out, best...)
		}
	case string:
		if a, b := masked(w), masked(have.(string)); a != b && !sameSet(a, b) {
			*out = append(*out, fmt.Sprintf("%s: %q, want %q", path, b, a))
		}
	default:
		if want != have {
			*out = append(*out, fmt.Sprintf("%s: %s, want %s", path, show(have), show(want)))
		}
	}
}

func copyWithout(m map[string]any, k string) map[string]any {
	out := map[string]any{}
	for a, b := range m {
		if a != k {
			out[a] = b
		}
	}
	return out
}

// sameSet compares comma lists without regard to order.
func sameSet(a, b string) bool {
	x, y := strings.Split(a, ","), strings.Split(b, ",")
	sort.Strings(x)
	sort.Strings(y)
	return strings.Join(x, ",") == strings.Join(y, ",")
}

func show(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	if len(b) > 200 {
		b = b[:200]
	}
	return string(b)
}

func TestReplayFlows(t *testing.T) {
	dir := recordsDir()
	if dir == "" {
		t.Skip("no records here")
	}
	files, err := filepath.Glob(filepath.Join(dir, "flows", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	only := os.Getenv("CASTELLAN_ONLY")
	sumOK, sum := 0, 0
	for _, f := range files {
		if only != "" && !strings.Contains(f, only) {
			continue
		}
		ok, total := replayFlow(t, f, testing.Verbose())
		t.Logf("%s: %d of %d steps agree", filepath.Base(f), ok, total)
		sumOK, sum = sumOK+ok, sum+total
	}
	t.Logf("flows: %d of %d steps agree", sumOK, sum)
	if only == "" && sumOK*100 < sum*95 {
		t.Errorf("only %d of %d flow steps agree", sumOK, sum)
	}
}
