package catalog

import (
	"slices"
	"strings"

	"castellan/internal/catalog/facts"
	"castellan/internal/gate"
)

// familyRule gives classes to every operation of a path family. Rules add up; what no rule names is harmless.
type familyRule struct {
	products string // blank separated; empty = all
	methods  string // blank separated; empty = every method but GET
	path     string // segments: literal, a|b, * = any one, ** = any number of them, none included
	classes  string // blank separated; a leading "-" takes a class away that an earlier rule gave
}

// reviewedException sets the classes of single operations that a family rule judges wrongly.
type reviewedException struct {
	products string
	id       string // "GET /path"
	classes  string
	reason   string
}

// Classes returns the published danger classes of an operation: the union over all requests that it takes, in
// their published order. None means harmless. An operation that nobody has judged gets what the rules say of
// its path and parameters; Judge treats it as unknown whatever that is.
func (c *Catalog) Classes(op *Operation) []gate.Class {
	return unionClasses(op)
}

func unionClasses(op *Operation) []gate.Class {
	for _, e := range reviewedExceptions {
		if e.id == op.ID && among(e.products, op.Product) {
			return classList(e.classes)
		}
	}
	has := map[gate.Class]bool{}
	for _, rules := range allFamilyRules() {
		for _, r := range rules {
			if r.matches(op) {
				r.apply(has)
			}
		}
	}
	for _, class := range parameterClasses(op) {
		has[class] = true
	}
	return sortedClasses(has)
}

func allFamilyRules() [][]familyRule {
	return [][]familyRule{generalRules, accessRules, hostRules, clusterRules, guestRules, backupRules, mailRules, fleetRules}
}

func classNamed(word string) (gate.Class, bool) {
	return gate.Class(word), slices.Contains(gate.Classes(), gate.Class(word))
}

func (r familyRule) matches(op *Operation) bool {
	if !among(r.products, op.Product) {
		return false
	}
	if r.methods == "" && op.Method == "GET" || r.methods != "" && !among(r.methods, op.Method) {
		return false
	}
	return matchPath(r.path, op.Path)
}

func (r familyRule) apply(has map[gate.Class]bool) {
	for name := range strings.FieldsSeq(r.classes) {
		if taken, ok := strings.CutPrefix(name, "-"); ok {
			delete(has, gate.Class(taken))
			continue
		}
		has[gate.Class(name)] = true
	}
}

// among reports whether word is in a blank separated list; the empty list holds every word.
func among(list, word string) bool {
	if list == "" {
		return true
	}
	for w := range strings.FieldsSeq(list) {
		if w == word {
			return true
		}
	}
	return false
}

// matchPath compares a path template with a pattern, segment by segment.
func matchPath(pattern, path string) bool {
	pattern, path = strings.TrimPrefix(pattern, "/"), strings.TrimPrefix(path, "/")
	for {
		if pattern == "" {
			return path == ""
		}
		p, prest, _ := strings.Cut(pattern, "/")
		if p == "**" {
			for {
				if matchPath(prest, path) {
					return true
				}
				if path == "" {
					return false
				}
				_, path, _ = strings.Cut(path, "/")
			}
		}
		if path == "" {
			return false
		}
		s, srest, _ := strings.Cut(path, "/")
		if p != "*" && !oneOf(p, s) {
			return false
		}
		pattern, path = prest, srest
	}
}

func oneOf(alternatives, segment string) bool {
	for a := range strings.SplitSeq(alternatives, "|") {
		if a == segment {
			return true
		}
	}
	return false
}

// generalRules hold for every product.
var generalRules = []familyRule{
	{"", "DELETE", "/**", "cfgdel"},
	// What is deleted here is not configuration: data, running work, sessions.
	{"", "DELETE", "/**/snapshot/*", "-cfgdel data"},
	{"", "DELETE", "/**/snapshots|groups|namespace|prunebackups", "-cfgdel data"},
	{"", "DELETE", "/access/ticket", "-cfgdel"},
	{"", "DELETE", "/**/tasks/*", "-cfgdel power guard"},
}

func parameterClasses(op *Operation) []gate.Class {
	var out []gate.Class
	for name := range op.Facts.Params {
		if op.Method != "DELETE" && !slices.Contains(op.Placeholders, name) && secretName(op.Product, name) {
			out = append(out, gate.ClassSin)
			break
		}
	}
	if op.Method != "GET" && op.Facts.Returns != nil && returnsSecret(op.Facts.Returns, 3) {
		out = append(out, gate.ClassSout)
	}
	if op.Facts.Download || op.Facts.Stream != "" && !strings.HasSuffix(op.Path, "websocket") {
		out = append(out, gate.ClassFile)
	}
	return out
}

// secretName tells parameters that carry a secret by the words that the four APIs use for one.
func secretName(product, name string) bool {
	if product == "pbs" && name == "encryption-key" {
		return false // the name of a key that the server holds
	}
	switch name {
	case "password", "confirmation-password", "cipassword", "bindpw", "pass", "crypt_pass", "root-password", "root-password-hashed",
		"client-key", "secret", "secret-key", "secret_key", "eab-hmac-key", "eab_hmac_key", "encryption-key", "keyring", "vncticket", "ticket", "token":
		return true
	}
	return false
}

// returnsSecret looks for keys of an answer that hold a secret or a ticket. It is asked for writes only: what a
// read returns is often masked by the server, so reads are judged by family.
func returnsSecret(s *facts.Schema, depth int) bool {
	if s == nil || depth < 0 {
		return false
	}
	for name, p := range s.Properties {
		switch name {
		case "ticket", "secret", "password", "client-key", "encryption-key", "root-password", "root-password-hashed":
			return true
		}
		if returnsSecret(p, depth-1) {
			return true
		}
	}
	return returnsSecret(s.Items, depth-1)
}

func classList(words string) []gate.Class {
	has := map[gate.Class]bool{}
	for w := range strings.FieldsSeq(words) {
		has[gate.Class(w)] = true
	}
	return sortedClasses(has)
}

func sortedClasses(has map[gate.Class]bool) []gate.Class {
	var out []gate.Class
	for _, class := range gate.Classes() {
		if has[class] {
			out = append(out, class)
		}
	}
	return out
}
