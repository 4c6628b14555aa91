package oauth

import (
	"strconv"
	"strings"

	"castellan/internal/gate"
)

// event is what the ledger is told of authorization, in the transaction of what it tells.
type event struct {
	name   string // "authorize_ok", "authorize_fail", "authorize_lockout", "token_issued", "token_denied", "token_replay", "revoke_ok", "revoke_denied", "access_denied", "register_ok", "register_denied"
	status string // "ok" or "denied"
	from   Remote
	who    gate.Principal // whom it concerns, as far as known
	client string
	token  string // id of a token or code, never the text
	grant  string
	reason string // one of our own words
	detail string // may hold words of outsiders
	left   int    // like ones that were not recorded
}

const maxAgentText = 200

func (s *Server) record(tx gate.Tx, e event) error {
	marks := map[string]string{"credential": e.token, "grant": e.grant, "reason": e.reason}
	if e.from.IP.IsValid() {
		marks["ip"] = e.from.IP.Unmap().String()
	}
	if e.left > 0 {
		marks["left_out"] = strconv.Itoa(e.left)
	}
	parts := map[string]string{}
	if e.from.UserAgent != "" {
		parts["user_agent"] = clip(e.from.UserAgent, maxAgentText)
	}
	if e.detail != "" {
		parts["detail"] = clip(e.detail, 1000)
	}
	actor := ""
	if e.who.Agent != "" || e.who.Person != "" {
		actor = e.who.Key()
	}
	_, err := tx.Append(gate.Record{At: s.now(), Kind: "auth", Operation: e.name, Actor: actor, Client: clip(e.client, maxClientID), WayIn: "mcp-http", Status: e.status, Marks: marks, Parts: parts})
	return err
}

// clip bounds a text of outsiders and takes control characters out of it.
func clip(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}
