package lane

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"castellan/internal/command"
	"castellan/internal/regex"
)

var (
	sqlBegins = []string{"select", "with", "table", "values", "show", "explain"}
	sqlFirst  = &regex.Lazy{Expr: `^\(*\s*([A-Za-z]+)`}
	// what keeps passwords, or the way to other servers
	sqlSecrets = &regex.Lazy{Expr: `(?i)\b(pg_authid|pg_shadow|_?pg_user_mappings?|user_mapping_options|pg_subscription|pg_hba_file_rules|pg_ident_file_mappings|pg_file_settings|pg_largeobject)\b`}
)

// readsOnly says why a text is not one SQL statement that only reads. It is stricter than a server: whatever ends the
// read-only transaction around it, talks to the client, or calls a function that is not known is refused.
func readsOnly(text string) error {
	text = strings.TrimRight(text, " \t\r\n;")
	switch {
	case len(text) > maxSQL:
		return fmt.Errorf("the query is longer than %d bytes", maxSQL)
	case !utf8.ValidString(text):
		return errors.New("the query is no valid UTF-8")
	case strings.Contains(text, ";"):
		return errors.New("a query is one statement: it may hold no \";\"")
	case strings.Contains(text, `\`):
		return errors.New("a query may hold no backslash: the client reads commands of its own there")
	}
	for _, r := range text {
		if r < 0x20 && r != '\n' && r != '\t' && r != '\r' || r == 0x7f {
			return fmt.Errorf("the query holds the control character U+%04X", r)
		}
	}
	first := sqlFirst.FindStringSubmatch(strings.TrimSpace(text))
	if first == nil || !slices.Contains(sqlBegins, strings.ToLower(first[1])) {
		return errors.New("a query begins with one of " + strings.ToUpper(strings.Join(sqlBegins, ", ")))
	}
	if m := sqlSecrets.FindString(text); m != "" {
		return fmt.Errorf("%s holds secrets", strings.ToLower(m))
	}
	if v := command.SQL(text); v.Risk != command.Low {
		return fmt.Errorf("it may do more than read: %s", strings.Join(v.Reasons, "; "))
	}
	return nil
}
