package catalog

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"castellan/internal/catalog/facts"
	"castellan/internal/gate"
)

// Grade says what a text of an answer is.
type Grade int

// The grades. What nobody has graded is free text.
const (
	GradeNone       Grade = iota // no text of others: a figure, a truth value, one of a fixed list of words
	GradeIdentifier              // a bounded identifier: a name, a tag, a state, an address
	GradeFree                    // free text: whatever somebody wrote
)

// gradedNames are the two lists of names, split once.
var gradedNames = sync.OnceValue(func() map[string]Grade {
	out := map[string]Grade{}
	for n := range strings.FieldsSeq(freeNames) {
		out[n] = GradeFree
	}
	for n := range strings.FieldsSeq(boundedNames) {
		out[n] = GradeIdentifier
	}
	return out
})

// gradeException gives a field of some operations another grade than its name has.
type gradeException struct {
	products, path, field string
	grade                 Grade
}

var gradeExceptions = []gradeException{
	// Subscriptions, certificates and capabilities: words of the product or of the issuer of a certificate, bounded.
	{"", "/**/certificates/info", "subject", GradeIdentifier}, {"", "/**/certificates/info", "issuer", GradeIdentifier},
	{"", "/**/subscription", "message", GradeIdentifier}, {"", "/**/services/**", "desc", GradeIdentifier}, {"", "/**/services/**", "description", GradeIdentifier},
	{"pve", "/nodes/*/capabilities/**", "description", GradeIdentifier},
	{"pve", "/cluster/firewall/macros", "descr", GradeIdentifier},
	{"pve", "/nodes/*/aplinfo", "*", GradeFree},
	{"pve", "/cluster/ha/rules/**", "rule", GradeIdentifier}, // its name
	// Long lists of words of the product and of the processor.
	{"pve", "/nodes/*/status", "flags", GradeNone}, {"pve", "/access/roles", "privs", GradeNone},
	// The exit of a task may be the last line of what it ran.
	{"", "/**/tasks/**", "exitstatus", GradeFree}, {"", "/**/tasks", "status", GradeFree},
	{"pve", "/cluster/tasks", "status", GradeFree},
	// Names that are text here.
	{"pve", "/nodes/*/hosts", "data", GradeFree}, {"pmg", "/config/ruledb/**", "name", GradeFree}, {"pmg", "/quarantine/**", "*", GradeFree}, {"pmg", "/statistics/**", "*", GradeFree},
	{"pbs", "/tape/**", "label-text", GradeFree}, {"pmg", "/config/ldap/**", "*", GradeFree},
}

// plainReads hold identifiers and figures only, whatever they answer: they are not looked through. They are the listings
// that everything begins with.
var plainReads = []familyRule{
	{"pve", "GET", "/cluster/resources", ""}, {"pve", "GET", "/cluster/status", ""}, {"pve", "GET", "/nodes", ""}, {"pve", "GET", "/nodes/*/qemu|lxc", ""}, {"pve", "GET", "/nodes/*/storage", ""},
	{"pve", "GET", "/nodes/*/storage/*/status", ""}, {"pve", "GET", "/nodes/*/qemu|lxc/*/status/current", ""}, {"", "GET", "/**/version", ""}, {"", "GET", "/**/rrddata", ""}, {"", "GET", "/access/permissions", ""},
	{"pve", "GET", "/nodes/*/qemu|lxc/*/feature", ""},
}

// Grade tells what a field of a read's answer holds, by its name: the key that its value stands under.
func (op *Operation) Grade(field string) Grade {
	name := strings.TrimSuffix(strings.TrimRight(field, "0123456789"), "[n]")
	for _, e := range gradeExceptions {
		if (e.field == field || e.field == name || e.field == "*") && (familyRule{products: e.products, methods: op.Method, path: e.path}).matches(op) {
			return e.grade
		}
	}
	all := gradedNames()
	for _, n := range []string{field, name} {
		if g, ok := all[n]; ok {
			return g
		}
	}
	return GradeFree
}

// gradeOf is the grade of a described field: what is no text has none.
func (op *Operation) gradeOf(field string, s *facts.Schema) Grade {
	if s != nil && (s.Type == "integer" || s.Type == "number" || s.Type == "boolean" || s.Type == "null" || len(s.Enum) > 0) {
		return GradeNone
	}
	return op.Grade(field)
}

// wholly says what an operation's answer is before it is seen: GradeFree when all of it counts as free text, GradeIdentifier
// when nothing of it does, GradeNone when its fields decide.
func (op *Operation) wholly() Grade {
	switch {
	case op.Foreign, freeText(op):
		return GradeFree
	case slices.ContainsFunc(plainReads, func(r familyRule) bool { return r.matches(op) }):
		return GradeIdentifier
	case op.Method != "GET":
		return GradeIdentifier // the answer of a write is a task's id, or nothing
	}
	return GradeNone
}

// mayHoldFreeText says whether an answer of the operation can hold free text.
func (op *Operation) mayHoldFreeText() bool {
	switch op.wholly() {
	case GradeFree:
		return true
	case GradeIdentifier:
		return false
	}
	return op.Facts.Returns == nil || op.describesFreeText("", op.Facts.Returns, 8)
}

func (op *Operation) describesFreeText(field string, s *facts.Schema, depth int) bool {
	if s == nil || depth == 0 {
		return true
	}
	switch {
	case s.Type == "object" || len(s.Properties) > 0:
		if len(s.Properties) == 0 {
			return true // what is in it is not told
		}
		for name, p := range s.Properties {
			if op.describesFreeText(name, p, depth-1) {
				return true
			}
		}
		return false
	case s.Type == "array" || s.Items != nil:
		return op.describesFreeText(field, s.Items, depth-1)
	case s.Type == "null":
		return false
	}
	return op.gradeOf(field, s) == GradeFree
}

const (
	maxIdentifier = 512     // bytes of a value that still counts as an identifier
	maxBlanks     = 12      // and blanks within it
	maxGraded     = 2 << 20 // bytes of an answer that is looked through; a larger one counts as free text
)

// Outside says who may have written the free text that an answer holds; none when it holds identifiers only.
func (c *Catalog) Outside(op *Operation, data json.RawMessage) []string {
	switch op.wholly() {
	case GradeFree:
		if len(bytes.TrimSpace(data)) <= 4 && slices.Contains([]string{"", "null", "[]", "{}", `""`}, string(bytes.TrimSpace(data))) {
			return nil
		}
		return []string{op.author()}
	case GradeIdentifier:
		return nil
	}
	if len(data) > maxGraded {
		return []string{op.author()}
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if len(data) > 0 && (d.Decode(&v) != nil || d.More()) || op.free("", v) {
		return []string{op.author()}
	}
	return nil
}

func (op *Operation) free(field string, v any) bool {
	switch x := v.(type) {
	case string:
		if x == "" || figure(x) {
			return false
		}
		switch op.Grade(field) {
		case GradeNone:
			return false
		case GradeFree:
			return !op.listed(field, x) && !op.ending(field, x)
		}
		return !identifier(x)
	case map[string]any:
		if about, ok := x["key"].(string); ok && len(x) > 1 { // a row about one setting: its values are that setting's
			for k, e := range x {
				if k != "key" && op.free(about, e) {
					return true
				}
			}
			return !identifier(about)
		}
		for k, e := range x {
			if !identifier(k) || op.free(k, e) {
				return true
			}
		}
	case []any:
		for _, e := range x {
			if op.free(field, e) {
				return true
			}
		}
	}
	return false
}

// figure says whether a text is a plain number, which says nothing to anybody.
func figure(s string) bool { return len(s) <= 24 && strings.Trim(s, "0123456789.") == "" }

// ending says whether a value is one of Proxmox's own words for how a task stands or ended; any other may be the last line
// of what the task ran.
func (op *Operation) ending(field, value string) bool {
	if field != "exitstatus" && field != "status" || !strings.Contains(op.Path, "/tasks") {
		return false
	}
	warned, isWarned := strings.CutPrefix(value, "WARNINGS: ")
	return value == "OK" || value == "running" || value == "stopped" || value == "unexpected status" || isWarned && figure(warned)
}

// listed says whether a value is one of the words that the API itself names for the field.
func (op *Operation) listed(field, value string) bool {
	s := op.Facts.Returns
	for depth := 0; s != nil && depth < 4; depth++ {
		if p := s.Properties[field]; p != nil {
			return slices.ContainsFunc(p.Enum, func(e any) bool { return e == value })
		}
		if s.Items == nil {
			break
		}
		s = s.Items
	}
	return false
}

// identifier says whether a text can be a bounded identifier: one short line of visible signs, with few blanks.
func identifier(s string) bool {
	return len(s) <= maxIdentifier && strings.Count(s, " ") <= maxBlanks && gate.Clean(s) == s && !strings.ContainsAny(s, "\n\t")
}

func (op *Operation) author() string {
	for _, a := range authors {
		if (familyRule{products: a.products, methods: op.Method, path: a.path}).matches(op) {
			return a.who
		}
	}
	return "other people or programs"
}
