package opstest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"castellan/internal/catalog"
	"castellan/internal/gate"
)

// Show writes what an operation returned as text that tests compare: an answer as JSON, a draft step by step, an
// error with its kind and hint.
func Show(c *catalog.Catalog, answer any, d *gate.Draft, err error) string {
	var b strings.Builder
	switch {
	case err != nil:
		showError(&b, err)
	case d != nil:
		showDraft(&b, c, d, "")
	default:
		raw, err := json.MarshalIndent(answer, "", "  ")
		if err != nil {
			return err.Error()
		}
		b.Write(raw)
		b.WriteByte('\n')
	}
	return b.String()
}

func showError(b *strings.Builder, err error) {
	var e *gate.Error
	if errors.As(err, &e) {
		fmt.Fprintf(b, "error %s: %s\nhint: %s\nchanged: %s\n", e.Kind, e.Message, e.Hint, e.Changed)
		return
	}
	var u *gate.UpstreamError
	if errors.As(err, &u) {
		fmt.Fprintf(b, "upstream %s: %v\n", u.Kind, err)
		return
	}
	fmt.Fprintf(b, "bare error: %v\n", err)
}

func showDraft(b *strings.Builder, c *catalog.Catalog, d *gate.Draft, indent string) {
	p := func(format string, a ...any) { fmt.Fprintf(b, indent+format+"\n", a...) }
	if len(d.Steps)+len(d.Children) == 0 {
		p("nothing to do")
	}
	if d.Note != "" {
		p("note: %s", d.Note)
	}
	for _, s := range d.Skip {
		p("skip: %s", s)
	}
	for _, x := range d.Diff {
		p("diff: %s %s: %q -> %q %s", x.Object, x.Key, x.Old, x.New, x.Note)
	}
	for i, s := range d.Steps {
		p("step %d: %s", i+1, request(s.API))
		for _, line := range judged(c, s.API) {
			p("  %s", line)
		}
		if n := s.When.StepFailed + s.When.CheckFailed; n > 0 {
			p("  only when step %d failed", n)
		}
		if s.Wait.Kind != "" {
			p("  wait: %s %s", s.Wait.Kind, s.Wait.Limit)
		}
		if d := s.Download; d != nil {
			size := "of an untold size"
			if d.Size != nil {
				size = fmt.Sprintf("of %d bytes", *d.Size)
			}
			p("  fetches: %q %s, zip %v", d.Name, size, d.Zip)
		}
		if s.FreshDigest != nil {
			p("  fresh digest: %s", read(*s.FreshDigest))
		}
		for _, x := range s.Require {
			p("  require: %s", condition(x))
		}
		for _, x := range s.Verify {
			p("  verify: %s", condition(x))
		}
		switch {
		case s.Undo.None != "":
			p("  no undo: %s", s.Undo.None)
		case s.Undo.Call != nil:
			p("  undo: %s: %s", s.Undo.How, request(s.Undo.Call))
			for _, line := range judged(c, s.Undo.Call) {
				if strings.HasPrefix(line, "PROBLEM") {
					p("    %s", line)
				}
			}
		default:
			p("  undo: %s", s.Undo.How)
		}
		for _, lost := range s.Undo.Lost {
			p("    without: %s", lost)
		}
	}
	for i, child := range d.Children {
		p("child %d:", i+1)
		showDraft(b, c, child, indent+"  ")
	}
}

// judged says what the catalogue finds wrong with the request, and how it judges it.
func judged(c *catalog.Catalog, r *gate.Request) (lines []string) {
	if r == nil {
		return nil
	}
	op, ok := c.Lookup(r.Product, r.Operation)
	if !ok {
		return []string{"PROBLEM no such operation"}
	}
	args := map[string]any{}
	plain := gate.Request{Product: r.Product, Operation: r.Operation}
	for _, p := range r.Params {
		if len(p.Values) > 1 {
			var texts []any
			for _, v := range p.Values {
				texts = append(texts, v.Text)
			}
			args[p.Name] = texts
			plain.Params = append(plain.Params, p)
			continue
		}
		args[p.Name] = r.Text(p.Name)
		plain.Params = append(plain.Params, gate.Param{Name: p.Name, Values: []gate.Value{{Text: r.Text(p.Name)}}})
	}
	_, problems := c.Check(op, args)
	for _, x := range problems {
		lines = append(lines, "PROBLEM "+x.Error())
	}
	j := c.Judge(op, plain)
	return append(lines, fmt.Sprintf("judged: %s %v", j.Effect, j.Kinds))
}

func request(r *gate.Request) string {
	if r == nil {
		return "none"
	}
	out := r.Operation
	for _, p := range r.Params {
		for _, v := range p.Values {
			text := v.Text
			if v.Ref != nil {
				text = "where " + v.Ref.Guest + " is (" + v.Ref.Plan + ")"
				if v.Ref.Step > 0 {
					text = fmt.Sprintf("%s of step %d (now %s)", v.Ref.Pointer, v.Ref.Step, v.Ref.Plan)
				}
			}
			out += fmt.Sprintf(" %s=%q", p.Name, text)
		}
	}
	return out
}

func read(r gate.Read) string {
	out := r.Operation
	raw, err := json.Marshal(r.Params)
	if err == nil {
		out += " " + string(raw)
	}
	return out
}

func condition(c gate.Condition) string {
	out := c.Name + " [" + strings.TrimPrefix(c.Read.Operation, "GET ")
	if s, ok := c.Read.Params["snapshot"]; ok {
		out += " snapshot=" + s
	}
	if len(c.Where) > 0 {
		raw, err := json.Marshal(c.Where)
		if err == nil {
			out += " where " + string(raw)
		}
	}
	out += " " + c.Pointer
	if c.Key != "" {
		out += " " + c.Key
	}
	out += " " + string(c.Rule)
	if len(c.Value) > 0 {
		out += " " + string(c.Value)
	}
	out += "]"
	if c.Identity {
		out += " identity"
	}
	if c.Soft {
		out += " soft"
	}
	return out
}
