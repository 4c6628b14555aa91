package oauth

import (
	"slices"
	"strings"

	"castellan/internal/gate"
)

// The scopes. There is none for approving or administering: a token never can.
const (
	ScopeRead    = "read"
	ScopeOperate = "operate"
	ScopeOffline = "offline_access"
)

// Scopes lists all scopes, least first.
func Scopes() []string { return []string{ScopeRead, ScopeOperate, ScopeOffline} }

// resourceScopes are those of the resource itself.
func resourceScopes() []string { return []string{ScopeRead, ScopeOperate} }

// knownScopes picks the scopes that there are out of a request's, sorted from least to most. Others are left out, as the
// RFC lets a server do: the answer names what was given.
func knownScopes(text string) []string {
	asked := strings.Fields(text)
	return slices.DeleteFunc(Scopes(), func(s string) bool { return !slices.Contains(asked, s) })
}

// usable says whether scopes let anything be done at all.
func usable(scopes []string) bool {
	return slices.Contains(scopes, ScopeRead) || slices.Contains(scopes, ScopeOperate)
}

func subset(part, whole []string) bool {
	return !slices.ContainsFunc(part, func(s string) bool { return !slices.Contains(whole, s) })
}

// scopeRoles are the roles that scopes stand for.
func scopeRoles(scopes []string) []string {
	var out []string
	if slices.Contains(scopes, ScopeOperate) {
		out = append(out, gate.RoleOperator)
	}
	if slices.Contains(scopes, ScopeRead) {
		out = append(out, gate.RoleViewer)
	}
	return widened(out)
}

// widened adds what a role includes: whoever operates also views.
func widened(roles []string) []string {
	out := slices.Clone(roles)
	if slices.Contains(out, gate.RoleOperator) {
		out = append(out, gate.RoleViewer)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// rolesOf are the roles of a caller: viewer and operator as far as they were given to it and the person has them too, and
// the policy's own roles that the person has, since those only limit.
func rolesOf(given, persons []string) []string {
	given, persons = widened(given), widened(persons)
	return slices.DeleteFunc(persons, func(r string) bool {
		switch r {
		case gate.RoleViewer, gate.RoleOperator:
			return !slices.Contains(given, r)
		}
		return slices.Contains(gate.Roles(), r)
	})
}

// effective says whether roles let anything be done: to have none of the built-in ones is not to be limited by them.
func effective(roles []string) bool {
	return slices.Contains(roles, gate.RoleViewer) || slices.Contains(roles, gate.RoleOperator)
}
