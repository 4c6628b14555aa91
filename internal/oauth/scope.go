package oauth

import (
	"slices"
	"strings"
)

// The scopes. There is none for approving or administering: a token never can.
const (
	ScopeRead    = "read"
	ScopeOperate = "operate"
	ScopeOffline = "offline_access"
)

// The built-in roles that a token can have.
const (
	roleViewer   = "viewer"
	roleOperator = "operator"
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
		out = append(out, roleOperator)
	}
	if slices.Contains(scopes, ScopeRead) {
		out = append(out, roleViewer)
	}
	return widened(out)
}

// widened adds what a role includes: whoever operates also views.
func widened(roles []string) []string {
	out := slices.Clone(roles)
	if slices.Contains(out, roleOperator) {
		out = append(out, roleViewer)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// rolesOf are the roles of a caller: those given to it that the person has too, viewer and operator at most.
func rolesOf(given, persons []string) []string {
	persons = widened(persons)
	return slices.DeleteFunc(widened(given), func(r string) bool {
		return r != roleViewer && r != roleOperator || !slices.Contains(persons, r)
	})
}
