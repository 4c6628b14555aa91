package proxmox

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"castellan/internal/gate"
)

const masked = "«secret»"

// veil takes known secrets out of texts.
type veil struct {
	words []string
}

// add remembers a secret in the forms in which it travels.
func (v *veil) add(secret string) {
	secret = strings.TrimSpace(secret)
	if secret == "" {
		return
	}
	forms := []string{secret, url.QueryEscape(secret), url.PathEscape(secret)}
	if plain, err := url.QueryUnescape(secret); err == nil {
		forms = append(forms, plain)
	}
	for line := range strings.Lines(secret) {
		if line = strings.TrimSpace(line); len(line) >= 8 {
			forms = append(forms, line)
		}
	}
	for _, f := range forms {
		if f != "" && !slices.Contains(v.words, f) {
			v.words = append(v.words, f)
		}
	}
	// The longest first, so that no rest of one stays behind.
	slices.SortFunc(v.words, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
}

func (v *veil) text(s string) string {
	for _, w := range v.words {
		if len(w) >= 4 {
			s = strings.ReplaceAll(s, w, masked)
			continue
		}
		// Short ones only where they stand alone: "no" as a password must not blank "no such user".
		re, err := regexp.Compile(`(^|[^\pL\pN])` + regexp.QuoteMeta(w) + `($|[^\pL\pN])`)
		if err == nil {
			s = re.ReplaceAllString(s, "${1}"+masked+"${2}")
		}
	}
	return s
}

func (v *veil) failure(e *gate.UpstreamError) {
	if len(v.words) == 0 {
		return
	}
	e.Message, e.Hint = v.text(e.Message), v.text(e.Hint)
	for name, what := range e.Params {
		e.Params[name] = v.text(what)
	}
	if e.Cause != nil && v.text(e.Cause.Error()) != e.Cause.Error() {
		e.Cause = nil
	}
}
