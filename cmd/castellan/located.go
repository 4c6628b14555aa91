package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// located adds to a fault of the configuration where it stands: the file, and the line of the key that it names.
func located(path string, err error) error {
	text := err.Error()
	if strings.Contains(text, "from the environment") {
		return err
	}
	where := ""
	if !strings.Contains(text, "line ") {
		if b, rerr := os.ReadFile(path); rerr == nil {
			if key, line := firstKey(b, text); line > 0 {
				where = fmt.Sprintf(", line %d, key %s", line, key)
			}
		}
	}
	if where == "" && strings.Contains(text, path) {
		return err
	}
	return fmt.Errorf("%s%s: %w", path, where, err)
}

// firstKey finds the first word of a text that is a key of the file, and its line. "policy.files" may stand for an entry
// of it, "target[0].pins[1]" for the key pins of the first target.
func firstKey(file []byte, text string) (key string, line int) {
	lines := keyLines(file)
	word := regexp.MustCompile(`[a-z][a-z0-9_]*(\[\d+\])?(\.[a-z0-9_-]+(\[\d+\])?)*`)
	for _, w := range word.FindAllString(text, -1) {
		for k := w; ; {
			if n := lines[k]; n > 0 && strings.Contains(k, ".") {
				return w, n
			}
			cut := strings.LastIndexAny(k, ".[")
			if cut < 0 {
				break
			}
			k = k[:cut]
		}
	}
	return "", 0
}

// keyLines maps the keys of a TOML file, "a.b" or "a[0].b", to their lines. What cannot be read has none.
func keyLines(file []byte) map[string]int {
	out := map[string]int{}
	count := map[string]int{}
	table := ""
	var p unstable.Parser
	p.Reset(file)
	for p.NextExpression() {
		e := p.Expression()
		var path []string
		line := 0
		for k := e.Key(); k.Next(); {
			path = append(path, string(k.Node().Data))
			if line == 0 {
				line = p.Shape(k.Node().Raw).Start.Line
			}
		}
		name := strings.Join(path, ".")
		switch e.Kind {
		case unstable.ArrayTable:
			table = fmt.Sprintf("%s[%d]", name, count[name])
			count[name]++
			out[table] = line
		case unstable.Table:
			table = name
			out[table] = line
		case unstable.KeyValue:
			out[strings.TrimPrefix(table+"."+name, ".")] = line
		}
	}
	return out
}
