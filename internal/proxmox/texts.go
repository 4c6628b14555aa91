package proxmox

import (
	"maps"
	"slices"
	"strings"

	"castellan/internal/gate"
	"castellan/internal/regex"
)

// text is one rule of the table that reads the server's words. Nearly every refusal of the products is a 500 (PVE,
// PMG) or a 400 (PBS, PDM): only the words tell them apart. They never say whether a write had an effect.
type text struct {
	says  *regex.Lazy
	kind  gate.ErrorKind
	hint  string
	guest bool // also said of guests that do not exist: their existence is checked before it is believed
	lock  bool // something holds a lock: who is looked for
}

// texts is tried from the top; the first that fits counts.
func texts() []text {
	rule := func(says string, kind gate.ErrorKind, hint string) text {
		return text{says: &regex.Lazy{Expr: says}, kind: kind, hint: hint}
	}
	locked := func(says, hint string) text {
		return text{says: &regex.Lazy{Expr: says}, kind: gate.ErrUnavailable, hint: hint, lock: true}
	}
	ofGuest := func(says string, hint string) text {
		return text{says: &regex.Lazy{Expr: says}, kind: gate.ErrInvalid, hint: hint, guest: true}
	}
	const (
		root   = "Only root@pam with its password may do this; no role and no API token can."
		stale  = "Somebody changed it meanwhile: read it again and plan again."
		quorum = "The cluster has no quorum: nothing can be changed until enough nodes are back; reading works."
	)
	return []text{
		// Changed meanwhile.
		rule(`detected modified configuration`, gate.ErrStale, stale),
		rule(`checksum mismatch \(file change`, gate.ErrStale, stale),

		// Not now: quorum, locks, storages, time limits.
		rule(`no quorum`, gate.ErrUnavailable, quorum),
		rule(`unable to open file '/etc/pve/.*' - Permission denied`, gate.ErrUnavailable, quorum),
		locked(`is locked \([\w-]+\)`, "A task holds the lock; wait for its end. Never remove the lock while that task runs."),
		locked(`(?i)(?:can't|unable to|cannot|could not) (?:lock|get lock|acquire)\b.*`, "Another task is working on it; wait a little and try again."),
		locked(`(?i)\block\b.*(?:got timeout|timed out|timeout)`, "Another task is working on it; wait a little and try again."),
		rule(`storage '[^']*' is (?:disabled|not online|not available)`, gate.ErrUnavailable, "That storage is switched off or cannot be reached."),
		rule(`(?i)maintenance mode`, gate.ErrUnavailable, "It is in maintenance mode."),
		rule(`No QEMU guest agent configured`, gate.ErrUnavailable, "The guest agent is not switched on in this VM's configuration (agent=1), which takes effect at the next start."),
		rule(`QEMU guest agent is not running`, gate.ErrUnavailable, "The guest agent does not answer: not installed, not started, or the guest is still booting."),
		rule(`binary not installed|is not installed`, gate.ErrUnavailable, "That part of the product is not installed on this node."),

		// Not there.
		rule(`^Configuration file '.*' does not exist`, gate.ErrNotFound, "There is no guest of that id and kind on that node; it may be on another node. list_guests shows where each is."),
		rule(`(?:hostname|address) lookup (?:for )?'[^']*' (?:failed|did not find)`, gate.ErrNotFound, "There is no node of that name; list_nodes names them."),
		rule(`'[^']+' does not exist`, gate.ErrNotFound, "What the text names does not exist; look at the list of such objects for the right name."),
		rule(`(?i)\bno such (?:[\w-]+ )?(?:user|token|group|role|realm|domain|job|task|datastore|snapshot|backup|group|namespace|remote|node|pool|storage|volume|rule|alias|ipset|interface|service|disk|media|drive|account|plugin|entry|object|zone|vnet|subnet|resource|guest|vm|ct|container)\b`, gate.ErrNotFound, "What the text names does not exist; look at the list of such objects for the right name."),
		rule(`no rule at position`, gate.ErrNotFound, "Positions move when rules are added or taken away; read the rules again."),
		rule(`not HA managed`, gate.ErrNotFound, "That guest is not under high availability."),
		rule(`(?i)^unable to find\b|\bnot found\b`, gate.ErrNotFound, "What the text names was not found."),
		rule(`ha groups have been migrated to rules`, gate.ErrInvalid, "This cluster has no HA groups any more: use /cluster/ha/rules."),

		// Not for us.
		rule(`(?i)\bonly root (?:can|may)\b|only allowed for root@pam|user != root@pam`, gate.ErrDenied, root),
		rule(`not available with API token`, gate.ErrDenied, "This call takes a login with a password, not an API token."),
		rule(`(?i)permission check failed`, gate.ErrDenied, ""),

		// Not in this state.
		ofGuest(`(?:CT|VM) \d+ (?:is )?not running|container is not running`, "Start the guest first, or leave this out."),
		ofGuest(`(?:CT|VM) \d+ already running`, "The guest runs already."),
		rule(`(?i)is running\b`, gate.ErrInvalid, "Stop the guest first."),
		rule(`(?i)already (?:exists|defined|used|a pool member|in use)|belongs already|can't overwrite`, gate.ErrInvalid, "That name or id is taken: choose another one, or change what is there."),
		rule(`is not empty|still in use|used in HA resources|is used by|in use by`, gate.ErrInvalid, "Something still uses it; the text names what."),
		rule(`protection mode enabled|cannot remove protected`, gate.ErrInvalid, "It is protected. Protection is switched off in its own plan first, if that is really wanted."),
		rule(`\bno [\w -]+ configured\b`, gate.ErrInvalid, "It has to be configured first."),
		rule(`(?i)\bcan't\b|\bcannot\b|not supported|not available|not possible|only possible|not allowed|unable to|reserved name|read-only|missing|invalid|conflicts|no options specified|no such option|validation error|unknown|is not a\b`, gate.ErrInvalid, ""),
	}
}

// classify fills kind and hint from the server's words; it gives the rule for what has to be looked up.
func classify(rules []text, e *gate.UpstreamError) (text, bool) {
	// A parameter's own text says more than the general one.
	var says []string
	for _, name := range slices.Sorted(maps.Keys(e.Params)) {
		what := e.Params[name]
		says = append(says, what)
		if strings.Contains(what, "property is not defined in schema") {
			e.Hint = "This server does not know the parameter " + name + " here."
		}
	}
	says = append(says, e.Message)
	if e.Status == 400 && len(e.Params) > 0 {
		// Of parameters only these say more than that they are wrong.
		for _, s := range says {
			if hit, ok := match(rules, s); ok && (hit.kind == gate.ErrNotFound || hit.kind == gate.ErrDenied || hit.kind == gate.ErrStale) {
				e.Kind, e.Hint = hit.kind, hit.hint
				return hit, true
			}
		}
		return text{}, false
	}
	for _, s := range says {
		if hit, ok := match(rules, s); ok {
			e.Kind = hit.kind
			if hit.hint != "" {
				e.Hint = hit.hint
			}
			return hit, true
		}
	}
	return text{}, false
}

func match(rules []text, s string) (text, bool) {
	for _, r := range rules {
		if r.says.MatchString(s) {
			return r, true
		}
	}
	return text{}, false
}
