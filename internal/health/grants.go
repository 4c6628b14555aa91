package health

import (
	"encoding/json"
	"fmt"
	"strings"

	"castellan/internal/estate"
)

// grants are what castellan's own user may do. Lists leave out what it may not see, without a word: only the grants tell
// whether a short list is a whole one.
type grants map[string]map[string]estate.Int

func grantsOf(a *ask) (grants, bool) {
	if !a.ok() {
		return nil, false
	}
	var g grants
	if err := json.Unmarshal(a.raw, &g); err != nil {
		return nil, false
	}
	return g, true
}

// has says whether one of the privileges is held on a path: on itself, or on the nearest path above it that is named and
// passes it on.
func (g grants) has(path string, privileges ...string) bool {
	for p := path; ; {
		if held, named := g[p]; named {
			for _, privilege := range privileges {
				if on, has := held[privilege]; has && (p == path || on == 1) {
					return true
				}
			}
			return false
		}
		switch i := strings.LastIndexByte(p, '/'); {
		case p == "/":
			return false
		case i <= 0:
			p = "/"
		default:
			p = p[:i]
		}
	}
}

// whole returns an Unread when a list is cut to what castellan may see.
func (g grants) whole(part, where string, hides Level, path string, privileges ...string) []Unread {
	if g.has(path, privileges...) {
		return nil
	}
	return []Unread{{Part: part, Where: where, Hides: hides, Why: "the server leaves out what castellan's user may not see",
		Missing: fmt.Sprintf("%s on %s", strings.Join(privileges, " or "), path)}}
}
