package rights

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// State is what a Proxmox VE has of users, roles and access list, as far as it can be read. A nil field was not read.
type State struct {
	Users   map[string][]string // user → groups
	Tokens  map[string]bool     // user@realm!token → privileges separated
	Roles   map[string][]string // role → privileges
	Entries []Entry
}

// Effective lists the roles in force for a user or token on a path, as Proxmox finds them: the deepest entry wins, and an
// entry of the user itself stands before those of its groups. The value says whether the role is passed on.
func (s *State) Effective(id, path string) map[string]bool {
	user, _, isToken := strings.Cut(id, "!")
	if isToken {
		if separated, known := s.Tokens[id]; known && !separated {
			return s.Effective(user, path)
		}
	}
	if id == "root@pam" {
		return map[string]bool{"Administrator": true}
	}
	roles := map[string]bool{}
	steps := []string{"/"}
	for i, c := range path {
		if c == '/' && i > 0 {
			steps = append(steps, path[:i])
		}
	}
	if path != "/" {
		steps = append(steps, path)
	}
	for _, step := range steps {
		now := map[string]bool{}
		take := func(kind, who string) {
			for _, e := range s.Entries {
				if e.Path == step && e.Kind == kind && e.ID == who && (e.Propagate || step == path) {
					now[e.Role] = e.Propagate
				}
			}
		}
		if isToken {
			take("token", id)
		} else if take("user", id); len(now) == 0 {
			for _, g := range s.Users[user] {
				take("group", g)
			}
		}
		if len(now) > 0 {
			if p, no := now["NoAccess"]; no {
				now = map[string]bool{"NoAccess": p}
			}
			roles = now
		}
	}
	return roles
}

func (s *State) has(e Entry) bool { return slices.Contains(s.Entries, e) }

func (s *State) own(path, kind, id string) bool {
	return slices.ContainsFunc(s.Entries, func(e Entry) bool { return e.Path == path && e.Kind == kind && e.ID == id })
}

// Narrowed finds the pools and guests that a user's entries are confined to; none where it reaches all guests or none.
func (s *State) Narrowed(user string) (pools, guests []string) {
	if roles := s.Effective(user, "/vms"); slices.ContainsFunc(slices.Collect(maps.Keys(roles)), func(r string) bool { return slices.Contains(s.Roles[r], "VM.Audit") }) {
		return nil, nil
	}
	for _, e := range s.Entries {
		if e.Kind != "user" || e.ID != user {
			continue
		}
		if p, ok := strings.CutPrefix(e.Path, "/pool/"); ok && !slices.Contains(pools, p) {
			pools = append(pools, p)
		}
		if g, ok := strings.CutPrefix(e.Path, "/vms/"); ok && !slices.Contains(guests, g) {
			guests = append(guests, g)
		}
	}
	return pools, guests
}

// after lists the entries as they are once commands were carried out.
func (s *State) after(all []Command) []Entry {
	out := slices.Clone(s.Entries)
	for _, c := range all {
		if c.Operation != "PUT /access/acl" {
			continue
		}
		for _, kind := range []string{"user", "token"} {
			for role := range strings.SplitSeq(c.Params["roles"], ",") {
				e := Entry{c.Params["path"], kind, c.Params[kind+"s"], role, c.Params["propagate"] != "0"}
				if e.ID != "" && !slices.Contains(out, e) {
					out = append(out, e)
				}
			}
		}
	}
	return out
}

// Read takes the answers of GET /access/users (full), /access/roles and /access/acl; nil stands for what could not be read.
func Read(users, roles, acl json.RawMessage) (*State, error) {
	s := &State{}
	if users != nil {
		var rows []struct {
			ID     string          `json:"userid"`
			Groups json.RawMessage `json:"groups"`
			Tokens []struct {
				ID      string          `json:"tokenid"`
				Privsep json.RawMessage `json:"privsep"`
			} `json:"tokens"`
		}
		if err := json.Unmarshal(users, &rows); err != nil {
			return nil, fmt.Errorf("read users: %w", err)
		}
		s.Users, s.Tokens = map[string][]string{}, map[string]bool{}
		for _, r := range rows {
			s.Users[r.ID] = words(r.Groups)
			for _, t := range r.Tokens {
				s.Tokens[r.ID+"!"+t.ID] = flag(t.Privsep)
			}
		}
	}
	if roles != nil {
		var rows []struct {
			ID    string          `json:"roleid"`
			Privs json.RawMessage `json:"privs"`
		}
		if err := json.Unmarshal(roles, &rows); err != nil {
			return nil, fmt.Errorf("read roles: %w", err)
		}
		s.Roles = map[string][]string{}
		for _, r := range rows {
			s.Roles[r.ID] = words(r.Privs)
		}
	}
	if acl != nil {
		var rows []struct {
			Path      string          `json:"path"`
			Kind      string          `json:"type"`
			ID        string          `json:"ugid"`
			Role      string          `json:"roleid"`
			Propagate json.RawMessage `json:"propagate"`
		}
		if err := json.Unmarshal(acl, &rows); err != nil {
			return nil, fmt.Errorf("read access list: %w", err)
		}
		s.Entries = []Entry{}
		for _, r := range rows {
			s.Entries = append(s.Entries, Entry{r.Path, r.Kind, r.ID, r.Role, flag(r.Propagate)})
		}
	}
	return s, nil
}

// words reads a list that is an array in one answer and text with commas in another.
func words(raw json.RawMessage) []string {
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		return list
	}
	var text string
	_ = json.Unmarshal(raw, &text) // null and absent are an empty list
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == ';' })
}

// flag reads what is a number in one answer and text in another.
func flag(raw json.RawMessage) bool {
	switch string(raw) {
	case "1", `"1"`, "true":
		return true
	}
	return false
}
