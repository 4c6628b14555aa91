package health

import (
	"strings"

	"castellan/internal/gate"
	"castellan/internal/regex"
)

// said sorts what a server, task or guest said about a failure into castellan's own words: what outsiders put there stays
// out of the answer. Empty when the words are none that are known.
func said(text string) string {
	text = strings.ToLower(text)
	for _, f := range []struct{ part, means string }{
		{"agent is not running", "the guest agent does not run"}, {"no route to host", "there is no route to it"}, {"connection refused", "it refuses connections"}, {"is locked", "the guest is locked"},
		{"can't lock file", "another task held the lock"}, {"no space", "no space was left"}, {"out of space", "no space was left"}, {"max backup limit", "the storage keeps no more archives"}, {"not online", "the storage could not be reached"},
		{"no quorum", "the cluster had no quorum"}, {"timeout", "it timed out"}, {"timed out", "it timed out"}, {"broken pipe", "its connection broke"}, {"connection reset", "its connection broke"}, {"interrupted", "it was interrupted"},
		{"received interrupt", "it was stopped"}, {"aborted", "it was stopped"}, {"permission", "a right was missing"}, {"not permitted", "a right was missing"}, {"authentication", "a login failed"},
		{"not running", "something that it needs does not run"}, {"not installed", "something that it needs is not installed"}, {"already running", "it ran already"}, {"does not exist", "something that it needs does not exist"},
		{"no such", "something that it needs does not exist"}, {"start failed", "it could not be started"}, {"out of memory", "there was no memory left"}, {"cannot allocate memory", "there was no memory left"}, {"job errors", "some of the job's guests failed"},
		{"exit code", "a command in it failed"}, {"command ", "a command in it failed"}, {"connect", "something could not be reached"},
	} {
		if strings.Contains(text, f.part) {
			return f.means
		}
	}
	return ""
}

var nameForm = &regex.Lazy{Expr: `^[A-Za-z0-9/\\_.:@+-]{1,80}$`}

// named is a name that a guest chose, where it is one; a sentence stays out.
func named(text string) string {
	if nameForm.MatchString(text) {
		return text
	}
	return "with a name of unusual form"
}

// plainText takes out what is not seen and makes one line of it.
func plainText(s string) string {
	return strings.TrimSpace(strings.NewReplacer("\n", " ", "\t", " ", "\r", " ").Replace(gate.Clean(s)))
}
