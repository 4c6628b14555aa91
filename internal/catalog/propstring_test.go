package catalog

import (
	"fmt"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"castellan/internal/catalog/facts"
)

var (
	perlPair  = regexp.MustCompile(`(?s)^([^=]+)=(.+)$`)
	perlBlank = regexp.MustCompile(`^\s*$`)
)

// perlReads is how PVE reads a property string, written anew from what its parser does: parts at commas, blank ones
// skipped, key=value with the first =, a part without = for the nameless key, aliases with or without a second key.
func perlReads(format map[string]*facts.Schema, text string) (map[string]string, error) {
	out := map[string]string{}
	usedDefault := false
	for _, part := range strings.Split(text, ",") {
		if perlBlank.MatchString(part) {
			continue
		}
		if m := perlPair.FindStringSubmatch(part); m != nil {
			k, v := m[1], m[2]
			if _, twice := out[k]; twice {
				return nil, fmt.Errorf("duplicate key %s", k)
			}
			s := format[k]
			if s != nil && s.Alias != "" {
				if s.KeyAlias != "" {
					if _, twice := out[s.KeyAlias]; twice {
						return nil, fmt.Errorf("key alias %s is already defined", s.KeyAlias)
					}
					out[s.KeyAlias] = k
				}
				k = s.Alias
				s = format[k]
			}
			if s == nil {
				return nil, fmt.Errorf("invalid key %s", k)
			}
			out[k] = v
			continue
		}
		if strings.Contains(part, "=") {
			return nil, fmt.Errorf("missing key")
		}
		key := ""
		for k, s := range format {
			if s.DefaultKey {
				key = k
			}
		}
		if key == "" || usedDefault || out[key] != "" {
			return nil, fmt.Errorf("value without key")
		}
		usedDefault = true
		out[key] = part
	}
	return out, nil
}

// rustReads is how PBS and PDM read one: as above without aliases, and a value may stand in double quotes.
func rustReads(format map[string]*facts.Schema, defaultKey, text string) (map[string]string, error) {
	out := map[string]string{}
	for text != "" {
		key := defaultKey
		if i := strings.IndexAny(text, "=,\""); i >= 0 && text[i] == '=' {
			key, text = text[:i], text[i+1:]
		}
		value := ""
		if strings.HasPrefix(text, `"`) {
			i := 1
			for ; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
				value += string(text[i])
			}
			if i >= len(text) {
				return nil, fmt.Errorf("unterminated quote")
			}
			text = strings.TrimPrefix(text[i+1:], ",")
		} else {
			value, text, _ = strings.Cut(text, ",")
		}
		if format[key] == nil || out[key] != "" {
			return nil, fmt.Errorf("unknown or repeated key %q", key)
		}
		out[key] = value
	}
	return out, nil
}

// TestPropertyStringsReadTheSame: what is sent is read by the product as the keys and values that are judged here.
func TestPropertyStringsReadTheSame(t *testing.T) {
	c := open(t)
	type place struct {
		op    *Operation
		param string
		s     *facts.Schema
	}
	var places []place
	for _, op := range c.All() {
		for name, s := range op.Facts.Params {
			item := s
			if s.Type == "array" && s.Items != nil {
				item = s.Items
			}
			if p := op.properties(item); p != nil && !p.open {
				places = append(places, place{op, name, item})
			}
		}
	}
	sort.Slice(places, func(i, j int) bool {
		a, b := places[i], places[j]
		return a.op.Product+a.op.ID+a.param < b.op.Product+b.op.ID+b.param
	})
	read := 0
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.SampledFrom(places).Draw(t, "place")
		p := at.op.properties(at.s)
		param := strings.Replace(at.param, "[n]", "0", 1)
		var arg any = drawArg(t, at.op, at.s, 0)
		if rapid.IntRange(0, 2).Draw(t, "as") == 0 { // as text, keys in any order, aliases and all
			var parts []string
			for _, key := range p.keys() {
				ks := p.props[key]
				if rapid.IntRange(0, 4).Draw(t, "use") == 0 {
					v, _ := plainText(drawArg(t, at.op, ks, 1))
					parts = append(parts, rapid.SampledFrom([]string{key + "=" + v, v, " " + key + "=" + v + " ", key + `="` + v + `"`}).Draw(t, "part"))
				}
			}
			arg = strings.Join(parts, ",")
		}
		args := map[string]any{param: arg}
		r, problems := c.Check(at.op, args)
		for _, problem := range problems {
			if strings.HasPrefix(problem.Param, param) {
				return
			}
		}
		for _, v := range r.Get(param) {
			var want map[string]string
			var err error
			if p.quoted {
				want, err = rustReads(p.props, p.defaultKey, v.Text)
			} else {
				want, err = perlReads(p.props, v.Text)
			}
			if err != nil {
				t.Fatalf("%s %s: %v becomes %q, which the product refuses: %v", at.op.ID, param, arg, v.Text, err)
			}
			got := map[string]string{}
			props, ok := at.op.ParseProperty(param, v.Text)
			for _, kv := range props {
				got[kv.Key] = kv.Value
			}
			if diff := cmp.Diff(want, got); diff != "" || !ok {
				t.Fatalf("%s %s %q: %s", at.op.ID, param, v.Text, diff)
			}
			read++
		}
	})
	if read == 0 {
		t.Error("no property string was read")
	}
	t.Log(read, "read")
}
