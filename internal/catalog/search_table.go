package catalog

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed words/*.txt
var wordFiles embed.FS

// told is what the word tables say about one operation.
type told struct {
	summary string
	said    string // the summary without the name of its place, for the index
	words   string
	scope   string
	index   bool
}

// rule is one line of a word table.
type rule struct {
	products string
	methods  string // letters of GET, CREATE (POST), UPDATE (PUT), DELETE
	path     string
	nouns    bool // text is "one thing; many things" and the sentence is made
	text     string
	words    string
}

// scope is a place that a family of paths is found below, such as the firewall of a guest.
type scope struct {
	name, products, path, phrase, words string
}

func wordLines(name string) []string {
	b, err := wordFiles.ReadFile("words/" + name + ".txt")
	if err != nil {
		return nil
	}
	var out []string
	for line := range strings.SplitSeq(string(b), "\n") {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			out = append(out, line)
		}
	}
	return out
}

// tableFiles are the word tables in the order in which they apply: a later one has the last word on a summary.
func tableFiles() []string { return []string{"shared", "pve", "pbs", "pmg", "pdm"} }

// wordTable reads the tables. A line is one of
//
//	scope NAME | PRODUCTS PATH | phrase | words
//	PRODUCTS METHODS PATH | sentence | words
//	PRODUCTS METHODS PATH | one thing; many things | words
//
// where PATH may begin with <NAME> and "$" stands for the phrase of the scope.
func wordTable() ([]scope, []rule, error) {
	var scopes []scope
	var rules []rule
	for _, file := range tableFiles() {
		for _, line := range wordLines(file) {
			cols := strings.Split(line, "|")
			for i := range cols {
				cols[i] = strings.TrimSpace(cols[i])
			}
			head := strings.Fields(cols[0])
			if len(head) == 2 && head[0] == "scope" && len(cols) == 4 {
				at := strings.Fields(cols[1])
				if len(at) != 2 {
					return nil, nil, fmt.Errorf("read word table %s: scope without a path: %q", file, line)
				}
				scopes = append(scopes, scope{head[1], at[0], at[1], cols[2], cols[3]})
				continue
			}
			if len(head) != 3 || len(cols) < 2 || len(cols) > 3 {
				return nil, nil, fmt.Errorf("read word table %s: not understood: %q", file, line)
			}
			r := rule{products: head[0], methods: head[1], path: head[2], text: cols[1], nouns: strings.Contains(cols[1], ";")}
			if len(cols) == 3 {
				r.words = cols[2]
			}
			rules = append(rules, r)
		}
	}
	return scopes, rules, nil
}

// places spells out the paths of a rule: the scopes that it is below, "(a,b)" as either, "[/x]" as with and without.
func (r rule) places(scopes []scope, product string) []scope {
	var out []scope
	for _, path := range spell(r.path) {
		name, rest, scoped := strings.Cut(strings.TrimPrefix(path, "<"), ">")
		if !scoped || path[0] != '<' {
			out = append(out, scope{path: path})
			continue
		}
		for _, s := range scopes {
			if s.name == name && applies(s.products, product) {
				s.path += rest
				out = append(out, s)
			}
		}
	}
	return out
}

func spell(path string) []string {
	if before, rest, ok := strings.Cut(path, "["); ok {
		if inner, after, ok := strings.Cut(rest, "]"); ok {
			return append(spell(before+after), spell(before+inner+after)...)
		}
	}
	if before, rest, ok := strings.Cut(path, "("); ok {
		if inner, after, ok := strings.Cut(rest, ")"); ok {
			var out []string
			for either := range strings.SplitSeq(inner, ",") {
				out = append(out, spell(before+either+after)...)
			}
			return out
		}
	}
	return []string{path}
}

func applies(products, product string) bool {
	return products == "*" || strings.Contains(","+products+",", ","+product+",")
}

// phrasebook is the word tables as read.
type phrasebook struct {
	scopes []scope
	rules  []rule
}

// tell applies the word tables to the operations of a product. An operation that no line names gets a
// sentence made from its path, so that one from a host's own description can be found too.
func (w *phrasebook) tell(product string, ops []*Operation) []told {
	byPath := map[string][]int{}
	for i, op := range ops {
		byPath[op.Path] = append(byPath[op.Path], i)
	}
	out := make([]told, len(ops))
	for _, r := range w.rules {
		if !applies(r.products, product) {
			continue
		}
		for _, s := range r.places(w.scopes, product) {
			for _, i := range byPath[s.path] {
				if strings.ContainsRune(r.methods, letter(ops[i].Method)) {
					out[i].take(r, s, ops[i])
				}
			}
		}
	}
	for i, op := range ops {
		if out[i].summary == "" {
			out[i].summary = plainSentence(op)
			out[i].said = out[i].summary
			out[i].index = op.Method == "GET"
		}
	}
	return out
}

func (t *told) take(r rule, s scope, op *Operation) {
	text := r.text
	if r.nouns {
		text = sentence(op, text)
	}
	if s.name != "" && !strings.Contains(t.scope, s.words) {
		t.scope += " " + s.words
	}
	if text != "" {
		t.summary, t.said = strings.ReplaceAll(text, "$", s.phrase), strings.ReplaceAll(text, "$", "")
		t.index = strings.HasPrefix(text, "Index of")
		if t.index {
			t.summary += "."
		}
	}
	t.words += " " + r.words
}

func letter(method string) rune {
	switch method {
	case "POST":
		return 'C'
	case "PUT":
		return 'U'
	case "DELETE":
		return 'D'
	case MethodRun:
		return 'R'
	}
	return 'G'
}

// sentence makes "List the backup jobs." and the like from "backup job; backup jobs".
func sentence(op *Operation, nouns string) string {
	one, many, _ := strings.Cut(nouns, ";")
	one, many = strings.TrimSpace(one), strings.TrimSpace(many)
	item := strings.HasSuffix(op.Path, "}")
	article := "a "
	if strings.ContainsRune("aeiou", rune(strings.ToLower(one)[0])) && !strings.HasPrefix(one, "us") && !strings.HasPrefix(one, "un") {
		article = "an "
	}
	switch {
	case op.Method == "GET" && !item:
		return "List the " + many + "."
	case op.Method == "GET":
		return "Show one " + one + "."
	case op.Method == "POST":
		return "Add " + article + one + "."
	case op.Method == "PUT":
		return "Change " + article + one + "."
	}
	return "Remove " + article + one + "."
}

// plainSentence describes an operation by its path alone.
func plainSentence(op *Operation) string {
	var words []string
	for seg := range strings.SplitSeq(op.Path, "/") {
		if _, hole := placeholder(seg); !hole && seg != "" {
			words = append(words, strings.NewReplacer("_", " ", "-", " ").Replace(seg))
		}
	}
	verb := map[string]string{"GET": "Show", "POST": "Run or add", "PUT": "Change", "DELETE": "Remove"}[op.Method]
	return verb + " " + strings.Join(words, ", ") + "."
}
