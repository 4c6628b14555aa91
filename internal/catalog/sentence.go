package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"castellan/internal/gate"
)

// longestShown is how many characters of one value a sentence shows.
const longestShown = 200

// Sentence says in one line of plain English what a request does. It is made from the typed request alone: every
// parameter that is sent appears in it, values are bounded and free of control characters, and a value that is
// not plain is in quotes, so that no value can pass for a part of the sentence. Secrets show as (secret).
func (c *Catalog) Sentence(op *Operation, r gate.Request) string { return wording(op, r) }

func wording(op *Operation, r gate.Request) string {
	s := &speaker{op: op, r: r, said: map[string]bool{}}
	for _, rule := range sentenceRules {
		if rule.fits(op, r) {
			return s.say(rule.text)
		}
	}
	return s.say(op.Method + " " + op.Path)
}

// sentenceRule is the wording of a path family. {name} stands for a parameter, {guest} for VM or CT and its id,
// {changes} for what is set, deleted and reverted. What a text does not name follows it in parentheses.
type sentenceRule struct {
	products string
	methods  string
	path     string
	text     string
}

// fits reports whether the rule is for the operation and the request has everything that its text names.
func (s sentenceRule) fits(op *Operation, r gate.Request) bool {
	if !(familyRule{products: s.products, methods: s.methods, path: s.path}.matches(op)) {
		return false
	}
	rest := s.text
	for {
		_, after, ok := strings.Cut(rest, "{")
		if !ok {
			return true
		}
		name, tail, _ := strings.Cut(after, "}")
		switch name {
		case "changes":
		case "guest":
			if r.Get("vmid") == nil {
				return false
			}
		default:
			if r.Get(name) == nil {
				return false
			}
		}
		rest = tail
	}
}

type speaker struct {
	op   *Operation
	r    gate.Request
	said map[string]bool
}

func (s *speaker) say(text string) string {
	var b strings.Builder
	changes := -1 // where the changes go: they are what is left at the end
	rest := text
	for {
		before, after, ok := strings.Cut(rest, "{")
		b.WriteString(before)
		if !ok {
			break
		}
		name, tail, _ := strings.Cut(after, "}")
		switch {
		case name == "changes":
			changes = b.Len()
		case name == "guest":
			b.WriteString(s.guest())
		case s.r.Get(name) == nil:
			b.WriteString("{" + name + "}")
		default:
			b.WriteString(s.values(name))
		}
		rest = tail
	}
	out := b.String()
	if changes >= 0 {
		return out[:changes] + s.changes() + out[changes:]
	}
	if left := s.left(); left != "" {
		out += " (" + left + ")"
	}
	return out
}

func (s *speaker) guest() string {
	word := "guest "
	switch {
	case matchPath("/**/qemu/**", s.op.Path):
		word = "VM "
	case matchPath("/**/lxc/**", s.op.Path):
		word = "CT "
	}
	return word + s.values("vmid")
}

// changes words what a configuration call sets, deletes and reverts.
func (s *speaker) changes() string {
	var parts []string
	for _, verb := range []string{"delete", "revert"} {
		if s.r.Get(verb) != nil && !s.said[verb] {
			parts = append(parts, verb+" "+s.values(verb))
		}
	}
	if left := s.left(); left != "" {
		parts = append([]string{"set " + left}, parts...)
	}
	if len(parts) == 0 {
		return "Change nothing"
	}
	out := strings.Join(parts, " and ")
	return strings.ToUpper(out[:1]) + out[1:]
}

// left lists the parameters that have not been said yet.
func (s *speaker) left() string {
	var out []string
	for _, p := range s.r.Params {
		if !s.said[p.Name] {
			out = append(out, shown(p.Name)+"="+s.values(p.Name))
		}
	}
	return strings.Join(out, ", ")
}

// values words all values of a parameter, wherever it was sent.
func (s *speaker) values(name string) string {
	s.said[name] = true
	var out []string
	for _, p := range s.r.Params {
		if p.Name == name {
			for _, v := range p.Values {
				out = append(out, s.value(name, v))
			}
		}
	}
	switch len(out) {
	case 0:
		return "nothing"
	case 1:
		return out[0]
	}
	return "[" + strings.Join(out, ", ") + "]"
}

func (s *speaker) value(name string, v gate.Value) string {
	switch {
	case v.Secret != nil:
		return piece(v.Secret.Before) + "(secret)" + piece(v.Secret.After)
	case v.Ref != nil && v.Ref.Guest != "" && v.Ref.Plan != "":
		return shown(v.Ref.Plan) + " (or where it is then)"
	case v.Ref != nil && v.Ref.Guest != "":
		return "(where guest " + shown(v.Ref.Guest) + " is then)"
	case v.Ref != nil:
		pointer := ""
		if v.Ref.Pointer != "" {
			pointer = shown(v.Ref.Pointer) + " of "
		}
		return "(" + pointer + "the result of step " + strconv.Itoa(v.Ref.Step) + planned(v.Ref.Plan) + ")"
	}
	if before, _, after, ok := s.op.SplitSecret(name, v.Text); ok {
		return piece(before) + "(secret)" + piece(after)
	}
	return shown(v.Text)
}

func planned(text string) string {
	if text == "" {
		return ""
	}
	return ", " + shown(text) + " when planned"
}

func piece(text string) string {
	if text == "" {
		return ""
	}
	return shown(text)
}

// shown writes a value: as it is if it is plain, else in quotes; what is too long loses its middle, of which the
// hash of the whole stands in.
func shown(text string) string {
	if q := quoted(text); utf8.RuneCountInString(q) <= longestShown {
		return q
	}
	sum := sha256.Sum256([]byte(text))
	mark := fmt.Sprintf("…(%d bytes, sha256 %s)…", len(text), hex.EncodeToString(sum[:])[:16])
	keep := longestShown - utf8.RuneCountInString(mark)
	head, tail := "", ""
	for n := keep * 2 / 3; n > 0; n-- { // quoting makes a text longer: take as much as fits
		if head = quoted(firstRunes(text, n)); utf8.RuneCountInString(head) <= keep*2/3 {
			break
		}
	}
	for n := keep / 3; n > 0; n-- {
		if tail = quoted(lastRunes(text, n)); utf8.RuneCountInString(tail) <= keep/3 {
			break
		}
	}
	return head + mark + tail
}

func firstRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

func lastRunes(s string, n int) string {
	i := len(s)
	for ; n > 0 && i > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(s[:i])
		i -= size
	}
	return s[i:]
}

// quoted leaves plain ASCII words alone and puts everything else into quotes, with escapes for what does not print.
func quoted(text string) string {
	for i := range len(text) {
		c := text[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._:/@+!,=;~%*-", c) >= 0 {
			continue
		}
		return strconv.Quote(text)
	}
	if text == "" {
		return `""`
	}
	return text
}
