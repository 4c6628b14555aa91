package lane

import (
	"strings"

	"castellan/internal/command"
	"castellan/internal/regex"
)

var (
	// starts are the usual ways in which Python starts a command, with the first texts that are given to it.
	starts  = &regex.Lazy{Expr: `\b(?:system|popen|Popen|run|call|check_call|check_output|getoutput|getstatusoutput|exec[lv]p?e?|spawn[lv]p?e?|create_subprocess_shell|create_subprocess_exec)\s*\(`}
	opens   = &regex.Lazy{Expr: `\bopen\s*\(\s*[rbuRBU]{0,2}["']([^"'\n]{1,300})["']\s*,\s*(?:mode\s*=\s*)?["']([^"'\n]{1,5})["']`}
	removes = &regex.Lazy{Expr: `\b(?:rmtree|remove|unlink|rmdir|removedirs)\s*\(\s*[rbuRBU]{0,2}["']([^"'\n]{1,300})["']`}
	written = &regex.Lazy{Expr: `\bPath\s*\(\s*["']([^"'\n]{1,300})["']\s*\)\s*\.\s*(?:write_text|write_bytes|unlink|touch|rmdir|rename|replace)`}
	quoted  = &regex.Lazy{Expr: `^(?:"""(?s:.*?)"""|'''(?s:.*?)'''|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')`}
	literal = &regex.Lazy{Expr: `"""((?s:.*?))"""|'''((?s:.*?))'''|"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)'`}
)

// python looks at the texts of a Python script that name commands and files.
func (d *denial) python(text string) {
	for _, m := range starts.FindAllStringIndex(text, 400) {
		args := text[m[1]:min(len(text), m[1]+4000)]
		if end := closing(args); end >= 0 {
			args = args[:end]
		}
		var words []string
		for _, l := range literal.FindAllStringSubmatch(args, 60) {
			words = append(words, l[1]+l[2]+l[3]+l[4])
		}
		if len(words) == 0 {
			continue
		}
		w := d.watcher()
		w.Unread = nil // a text with places for values is not the whole command
		if strings.HasPrefix(strings.TrimLeft(args, " \t\n"), "[") || strings.HasPrefix(strings.TrimLeft(args, " \t\n"), "(") || len(words) > 1 && !strings.ContainsAny(words[0], " \n") {
			command.WalkArgv(words, w)
		} else {
			command.Walk(words[0], w)
		}
	}
	for _, m := range opens.FindAllStringSubmatch(text, 400) {
		if strings.ContainsAny(m[2], "wax+") {
			d.writes(m[1])
		}
	}
	for _, m := range removes.FindAllStringSubmatch(text, 400) {
		d.writes(m[1])
		d.command(command.Simple{Name: "rm", Args: []command.Part{{Text: m[1]}}, Folder: ""})
	}
	for _, m := range written.FindAllStringSubmatch(text, 400) {
		d.writes(m[1])
	}
}

// closing is where the bracket closes that was opened just before; texts are stepped over.
func closing(s string) int {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"', '\'':
			if loc := quoted.FindStringIndex(s[i:]); loc != nil {
				i += loc[1] - 1
			}
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			if depth == 0 {
				return i
			}
			depth--
		}
	}
	return -1
}
