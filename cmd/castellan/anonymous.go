package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"castellan/internal/regex"
)

// anonymous replaces the names in a report that tell whose it is: the same name by the same word everywhere.
func (a *app) anonymous(raw json.RawMessage, out examined) (json.RawMessage, error) {
	r := renamer{words: map[string]string{}, count: map[string]int{}}
	for _, t := range out.Targets {
		r.name("target", t.Name)
		user, token, _ := strings.Cut(t.Login, "!")
		name, _, _ := strings.Cut(user, "@")
		if name != "root" {
			r.name("user", name)
		}
		r.name("token", token)
	}
	if s, path, _, err := a.load(); err == nil {
		for _, t := range s.Targets {
			r.name("target", t.Name)
			for _, addr := range t.Addresses {
				r.name("host", hostOf(addr))
			}
			for node, addr := range t.Nodes {
				r.name("node", node)
				r.name("host", hostOf(addr))
			}
		}
		r.name("host", hostOf(strings.TrimPrefix(strings.TrimPrefix(s.Daemon.PublicURL, "https://"), "http://")))
		r.name("folder", filepath.Dir(path))
		r.name("account", s.Daemon.Account)
		for _, x := range s.Daemon.Accounts {
			name, _, _ := strings.Cut(x, "=")
			r.name("account", name)
		}
	}
	if home, err := os.UserHomeDir(); err == nil {
		r.name("folder", home)
	}
	if host, err := os.Hostname(); err == nil {
		r.name("host", host)
	}
	r.name("account", accountName())
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, fmt.Errorf("read what doctor says: %w", err)
	}
	return json.Marshal(r.walk(v, ""))
}

func hostOf(addr string) string {
	addr = strings.TrimSuffix(addr, "/")
	if i := strings.LastIndexByte(addr, ':'); i > 0 && !strings.HasSuffix(addr, "]") && strings.Count(addr, ":") == 1 {
		return addr[:i]
	}
	return addr
}

// renamer gives names other names.
type renamer struct {
	words map[string]string
	count map[string]int
}

func (r *renamer) name(kind, word string) string {
	if len(word) < 2 || word == "/" || word == "castellan" || word == "localhost" {
		return word
	}
	if w := r.words[word]; w != "" {
		return w
	}
	r.count[kind]++
	r.words[word] = fmt.Sprintf("%s-%d", kind, r.count[kind])
	return r.words[word]
}

var (
	ipForm    = &regex.Lazy{Expr: `\b\d{1,3}(?:\.\d{1,3}){3}\b|\[?[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{0,4}){3,7}\]?`}
	printForm = &regex.Lazy{Expr: `(?:[0-9A-Fa-f]{2}:){19,31}[0-9A-Fa-f]{2}`}
	pathForm  = &regex.Lazy{Expr: `/(pool|storage|nodes|vms|sdn/zones)/([A-Za-z0-9._/-]+)`}
	fileForm  = &regex.Lazy{Expr: `/(?:home|root|Users|etc|var|srv|opt|tmp|run|usr)/[^\s:;,"')]+`}
	userForm  = &regex.Lazy{Expr: `([A-Za-z0-9._-]+)@([A-Za-z][A-Za-z0-9._-]*)`}
)

func (r *renamer) walk(v any, key string) any {
	switch x := v.(type) {
	case string:
		if slices.Contains([]string{"state", "verdict", "capability", "can", "privilege", "who", "product", "version"}, key) {
			return x
		}
		return r.text(x)
	case []any:
		for i, e := range x {
			x[i] = r.walk(e, key)
		}
		return x
	case map[string]any:
		for k, e := range x {
			x[k] = r.walk(e, k)
		}
		return x
	}
	return v
}

func (r *renamer) text(s string) string {
	s = printForm.ReplaceAllStringFunc(s, func(m string) string { return r.name("fingerprint", m) })
	s = fileForm.ReplaceAllStringFunc(s, func(m string) string { return r.name("file", m) })
	s = ipForm.ReplaceAllStringFunc(s, func(m string) string { return r.name("address", m) })
	s = pathForm.ReplaceAllStringFunc(s, func(m string) string {
		kind := strings.SplitN(m[1:], "/", 2)[0]
		at := strings.Index(m[1:], "/") + 2
		if kind == "sdn" {
			at = len("/sdn/zones/")
		}
		return m[:at] + r.name(kind, m[at:])
	})
	s = userForm.ReplaceAllStringFunc(s, func(m string) string {
		name, realm, _ := strings.Cut(m, "@")
		if name == "root" || name == "USER" {
			return m
		}
		return r.name("user", name) + "@" + realm
	})
	// The longest first: a name may be a part of another.
	all := make([]string, 0, len(r.words))
	for w := range r.words {
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	for _, w := range all {
		s = replaceWord(s, w, r.words[w])
	}
	return s
}

// replaceWord replaces a name where it stands alone.
func replaceWord(s, old, by string) string {
	var b strings.Builder
	for {
		i := strings.Index(s, old)
		if i < 0 {
			return b.String() + s
		}
		end := i + len(old)
		alone := (i == 0 || !isNameByte(s[i-1])) && (end == len(s) || !isNameByte(s[end]))
		if alone {
			b.WriteString(s[:i] + by)
		} else {
			b.WriteString(s[:end])
		}
		s = s[end:]
	}
}

func isNameByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
}
