package gate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
)

// moving are fields that change by themselves, or that are words for people and no settings.
var moving = []string{"digest", "comment", "comments", "description", "notes", "lock", "parent", "next-run", "last-run-state", "last-run-upid", "last-run-endtime", "active", "exists",
	"used", "avail", "total", "used_fraction", "tokens", "lastlogin", "time", "localtime", "checktime", "allowed-tags"}

// Bounds of what a condition keeps of a definition: one line, and how many; what is longer is kept as its hash.
const (
	maxSameLine  = 200
	maxSameLines = 300
)

// Keeping is a View that makes conditions of what it has read.
type Keeping interface {
	// Keep takes what the answer to the condition's read shows as what has to be there at the step: see RuleSame.
	Keep(target string, c *Condition, data json.RawMessage) error
}

// Keep implements Keeping.
func (v *view) Keep(target string, c *Condition, data json.RawMessage) error {
	lines, err := c.lines(data, v.secretIn(target, c.Read.Operation))
	if err != nil {
		return err
	}
	c.Rule, c.Lines = RuleSame, bounded(lines)
	return nil
}

// secretIn gives what takes out of a field what is a secret when it is written: conditions are kept and shown.
func (v *view) secretIn(target, read string) func(key, text string) string {
	t, err := v.Target(target)
	_, path, _ := strings.Cut(read, " ")
	return func(key, text string) string {
		if err != nil {
			return Withheld
		}
		for _, op := range []string{"PUT " + path, "POST " + path, "POST " + path[:max(0, strings.LastIndexByte(path, '/'))]} {
			r := Request{Product: t.Product, Operation: op}
			if len(v.g.c.Catalog.SecretValue(r, "digest", "x")) > 0 {
				continue // no such operation: all is taken for a secret
			}
			parts := v.g.c.Catalog.SecretValue(r, key, text)
			for _, p := range slices.Backward(parts) {
				text = text[:p.From] + Withheld + text[p.To:]
			}
			if len(parts) > 0 {
				return text
			}
		}
		if v.g.c.Catalog.SecretName(key) {
			return Withheld
		}
		return text
	}
}

// bounded keeps of many lines how many they are, and their hash.
func bounded(lines []string) []string {
	if len(lines) <= maxSameLines {
		return lines
	}
	return []string{fmt.Sprintf("%d entries %s", len(lines), hashed(strings.Join(lines, "\n")))}
}

func hashed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "#" + hex.EncodeToString(sum[:8])
}

// lines are the fields of the object that Pointer and Where lead to, or the rows of the list, each as one line.
func (c Condition) lines(data json.RawMessage, hide func(key, text string) string) ([]string, error) {
	var v any
	d := json.NewDecoder(strings.NewReader(string(orNull(data))))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("read answer for %q: %w", c.Name, err)
	}
	v, _ = pointed(v, c.Pointer)
	if rows, ok := v.([]any); ok && len(c.Where) > 0 {
		v = nil
		for _, row := range rows {
			if m, ok := row.(map[string]any); ok && c.row(m) {
				v = m
				break
			}
		}
	}
	switch x := v.(type) {
	case nil:
		return nil, nil
	case map[string]any:
		return c.fields(x, hide), nil
	case []any:
		out := make([]string, len(x))
		for i, row := range x {
			if m, ok := row.(map[string]any); ok {
				out[i] = short(strings.Join(c.fields(m, hide), " "))
			} else {
				out[i] = short(textOf(row))
			}
		}
		if !c.Ordered {
			slices.Sort(out)
		}
		return out, nil
	}
	return nil, errors.New("the answer is neither object nor list")
}

func (c Condition) fields(m map[string]any, hide func(key, text string) string) (out []string) {
	for k, v := range m {
		moves := slices.Contains(moving, k)
		if k == "active" && strings.HasPrefix(c.Read.Operation, "GET /config/") { // a switch of a rule of a Mail Gateway
			moves = false
		}
		if v == nil || moves || len(c.Fields) > 0 && !slices.Contains(c.Fields, k) {
			continue
		}
		if text := textOf(v); text != "" {
			if names(k, v) {
				text = strings.TrimSpace(v.(string))
			}
			out = append(out, short(k+"="+hide(k, text)))
		}
	}
	sort.Strings(out)
	return out
}

// names says whether a field is a name in a directory, or a filter of one: in these the order of what commas part counts.
func names(key string, v any) bool {
	_, text := v.(string)
	key = strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(key))
	return text && (strings.HasSuffix(key, "dn") || strings.Contains(key, "filter"))
}

func short(line string) string {
	if len(line) <= maxSameLine {
		return line
	}
	return strings.ToValidUTF8(line[:maxSameLine/2], "") + "… " + hashed(line)
}

// textOf writes a value in one form, however the server writes it: numbers as text, lists in no order. Perl's hashes come
// in another order each time.
func textOf(v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case string:
		parts := strings.Split(strings.TrimSpace(x), ",")
		sort.Strings(parts)
		return strings.Join(parts, ",")
	case bool:
		return map[bool]string{true: "1", false: "0"}[x]
	case json.Number:
		return x.String()
	case []any:
		parts := make([]string, len(x))
		for i, e := range x {
			parts[i] = textOf(e)
		}
		sort.Strings(parts)
		return strings.Join(parts, ",")
	}
	raw, err := json.Marshal(v) // keys sorted
	if err != nil {
		return "?"
	}
	return string(raw)
}

// changed says what is there now that was not, and what is not any more; empty when all is as it was.
func (c Condition) changed(lines []string) string {
	lines = bounded(lines)
	if slices.Equal(lines, c.Lines) {
		return ""
	}
	var parts []string
	for _, d := range []struct {
		word    string
		in, not []string
	}{{"now ", lines, c.Lines}, {"no longer ", c.Lines, lines}} {
		left := slices.Clone(d.not)
		var more []string
		for _, l := range d.in {
			if i := slices.Index(left, l); i >= 0 {
				left = slices.Delete(left, i, i+1)
				continue
			}
			more = append(more, clip(l, 80))
		}
		if n := len(more); n > 0 {
			text := d.word + strings.Join(more[:min(3, n)], "; ")
			if n > 3 {
				text += fmt.Sprintf(" and %d more", n-3)
			}
			parts = append(parts, text)
		}
	}
	if len(parts) == 0 {
		return "another order"
	}
	return strings.Join(parts, "; ")
}

// hold ties a step to what its request rests on: the object that it changes, as a whole, and what the names in it stand
// for. unheld says what could not be read, and so can change unseen.
func (g *Gate) hold(ctx context.Context, v *view, p *Plan, i int) (unheld []string) {
	s := &p.Steps[i]
	var held []Condition
	for _, sheet := range s.Undo.Sheets {
		if c, ok := sheet.asWhole(s.API.Operation); ok {
			held = append(held, c)
		}
	}
	for k, c := range held {
		a, err := v.Read(ctx, s.Target, c.Read)
		if err == nil {
			err = v.Keep(s.Target, &held[k], a.Data)
		}
		if err != nil && !notThere(err) {
			unheld = append(unheld, fmt.Sprintf("step %d: whether %s until then: %s", s.Number, c.Name, clip(AsError(err).Message, 160)))
		}
	}
	held = slices.DeleteFunc(held, func(c Condition) bool { return len(c.Lines) == 0 }) // it is not there: it is made by it
	defined, unread := g.c.Estate.Definitions(ctx, v, s.Target, *s.API, s.Judgement.References)
	for _, u := range unread {
		unheld = append(unheld, fmt.Sprintf("step %d: whether %s", s.Number, u))
	}
	for _, c := range append(held, defined...) {
		c.Until = p.touchedBefore(i, c)
		had := c.Rule == RuleSame && slices.ContainsFunc(s.Require, func(o Condition) bool {
			return o.Rule == RuleSame && o.Read.same(c.Read) && o.Pointer == c.Pointer && maps.Equal(o.Where, c.Where)
		})
		if !had {
			s.Require = append(s.Require, c)
		}
	}
	for k, c := range s.Require {
		if c.Rule == RuleAbsent && len(c.Until) == 0 && strings.HasSuffix(c.Read.Operation, "/snapshot") {
			s.Require[k].Until = p.touchedBefore(i, c) // an earlier step takes it
		}
	}
	return unheld
}

// touchedBefore numbers the steps before step i that may change what a condition of it looks at.
func (p *Plan) touchedBefore(i int, c Condition) (out []int) {
	for _, e := range p.Steps[:i] {
		if e.Target == p.Steps[i].Target && e.touches(c) {
			out = append(out, e.Number)
		}
	}
	return out
}

// required are the conditions of step i that count now. One of what an earlier step changes counts until the first of those is
// sent: it is looked at before that one, too.
func (r *PlanRecord) required(i int) []Condition {
	counts := func(c Condition) bool {
		return !slices.ContainsFunc(c.Until, func(n int) bool { return n <= len(r.Steps) && !r.Steps[n-1].Started.IsZero() })
	}
	s := r.Plan.Steps[i]
	var out []Condition
	for _, c := range s.Require {
		if counts(c) {
			out = append(out, c)
		}
	}
	for _, later := range r.Plan.Steps[i+1:] {
		for _, c := range later.Require {
			if later.Target == s.Target && slices.Contains(c.Until, s.Number) && counts(c) {
				c.Name = fmt.Sprintf("%s, for step %d", c.Name, later.Number)
				out = append(out, c)
			}
		}
	}
	return out
}

// asWhole is the condition that the object of a sheet is all that it was, where the operation changes or deletes it. The
// settings of a guest are many that have nothing to do with each other: of them those count that a step names.
func (s Sheet) asWhole(operation string) (Condition, bool) {
	if s.Form != SheetObject || s.Update != operation && s.Delete != operation || strings.HasSuffix(operation, "/{vmid}/config") {
		return Condition{}, false
	}
	return Condition{Name: s.Name + " is as it was", Read: s.Read, Pointer: s.At, Where: s.Where, Fields: s.Fields}, true
}

// touches says whether a step of the plan itself may change what a later step rests on.
func (s Step) touches(c Condition) bool {
	if s.API == nil || s.Judgement.Effect == EffectRead {
		return false
	}
	says := func(text string) bool {
		return slices.ContainsFunc(s.API.Params, func(p Param) bool {
			return slices.ContainsFunc(p.Values, func(v Value) bool { return slices.Contains(words(v.Text), text) })
		})
	}
	read, left := filled(c.Read.Operation, c.Read.Params)
	params := map[string]string{}
	for _, p := range s.API.Params {
		if len(p.Values) == 1 {
			params[p.Name] = p.Values[0].Text
		}
	}
	wrote, _ := filled(s.API.Operation, params)
	for _, text := range c.Where {
		left = append(left, text)
	}
	leaf := read[len(read)-1]
	if strings.HasSuffix(c.Read.Operation, "/{pos}") { // whatever changes the list moves what is in it
		read = read[:len(read)-1]
	}
	switch n := min(len(read), len(wrote)); {
	case s.sweeps(wrote, read):
		return true
	case strings.HasSuffix(c.Read.Operation, "/snapshot") && c.Read.Params["vmid"] != "":
		return s.API.Text("vmid") == c.Read.Params["vmid"] && (says(c.Where["name"]) || s.makesOrDestroys())
	case c.Read.Params["vmid"] != "" && s.actsOn(Object{Kind: ObjectGuest, ID: c.Read.Params["vmid"]}):
		snapshot := c.Read.Params["snapshot"]
		return !strings.HasSuffix(s.API.Operation, "/snapshot") || snapshot != "" && says(snapshot) // which changes no other setting
	case !slices.Equal(read[:n], wrote[:n]):
		return slices.ContainsFunc(s.Judgement.References, func(r Reference) bool { return r.Use == UseActs && r.Object.ID == leaf })
	case len(left) > 0:
		return slices.ContainsFunc(left, says)
	case len(wrote) < len(read):
		return says(leaf)
	}
	return true
}

func (s Step) actsOn(o Object) bool {
	return slices.ContainsFunc(s.Judgement.References, func(r Reference) bool { return r.Use == UseActs && r.Object.Kind == o.Kind && r.Object.ID == o.ID })
}

// sweeps says whether a step may change what it does not name: users are of groups, HA resources in rules, and a guest that
// comes or goes does so in pools, jobs and rules too.
func (s Step) sweeps(wrote, read []string) bool {
	in := func(path []string, begins ...string) bool {
		return slices.ContainsFunc(begins, func(b string) bool { return strings.HasPrefix(strings.Join(path, "/")+"/", b) })
	}
	return in(wrote, "access/users/") && in(read, "access/groups/") || in(wrote, "cluster/ha/resources/") && in(read, "cluster/ha/rules/", "cluster/ha/groups/") ||
		s.makesOrDestroys() && in(read, "pools/", "cluster/backup/", "cluster/ha/", "cluster/replication/")
}

func (s Step) makesOrDestroys() bool {
	method, path, _ := strings.Cut(s.API.Operation, " ")
	for _, kind := range []string{"/nodes/{node}/qemu", "/nodes/{node}/lxc"} {
		if method == "POST" && (path == kind || path == kind+"/{vmid}/clone") || method == "DELETE" && path == kind+"/{vmid}" {
			return true
		}
	}
	return false
}

// filled is the path of a request in parts, and the texts of its other parameters. Where a guest is counts for nothing.
func filled(operation string, params map[string]string) (path, left []string) {
	_, path1, _ := strings.Cut(operation, " ")
	path = strings.Split(strings.Trim(path1, "/"), "/")
	for i, part := range path {
		if name := strings.Trim(part, "{}"); name != part && name != "node" {
			path[i] = params[name]
		}
	}
	for name, text := range params {
		if !strings.Contains(path1, "{"+name+"}") {
			left = append(left, text)
		}
	}
	return path, left
}

// words are the names in a list.
func words(text string) []string {
	return append(SplitList(text), text)
}
