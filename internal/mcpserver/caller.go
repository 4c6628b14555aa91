package mcpserver

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"castellan/internal/gate"
)

// Caller is who sent an HTTP request, as the embedder's authentication found.
type Caller struct {
	Principal gate.Principal
	// Client names what holds the credential (an OAuth client, a static token). A session belongs to principal and client.
	Client string
	// StepUp gives the WWW-Authenticate header of a 403 that asks for this role too, with all scopes that are then needed.
	// nil, or an empty text: the caller cannot get it by asking for more scopes, and policy refuses in its own words.
	StepUp func(role string) string
}

// owner is what a session belongs to.
func (c Caller) owner() string { return c.Principal.Key() + "|" + c.Client }

// callerKey is where a request of the SDK carries its caller.
const callerKey = "castellan caller"

func callerOf(req mcp.Request) (Caller, bool) {
	x := req.GetExtra()
	if x == nil || x.TokenInfo == nil {
		return Caller{}, false
	}
	c, ok := x.TokenInfo.Extra[callerKey].(Caller)
	return c, ok
}

// principal is the configured one, or over HTTP that of this very request, with the client's own words about itself.
func (s *Server) principal(req mcp.Request) gate.Principal {
	p := s.c.Principal
	if s.remote {
		c, _ := callerOf(req) // the filter has refused a request without
		if p = c.Principal; p.WayIn == "" {
			p.WayIn = "mcp-http"
		}
	}
	if r, ok := req.(interface{ ClientInfo() *mcp.Implementation }); ok {
		if info := r.ClientInfo(); info != nil {
			p.Client = bounded(info.Name+" "+info.Version, 80)
		}
	}
	return p
}

// mayWrite says whether the roles of a principal let it make plans at all. Without a built-in role there is no such
// limit, except over the network.
func (s *Server) mayWrite(p gate.Principal) bool {
	limited := s.remote
	for _, role := range gate.Roles() {
		limited = limited || slices.Contains(p.Roles, role)
	}
	return !limited || slices.Contains(p.Roles, gate.RoleOperator) || slices.Contains(p.Roles, gate.RoleAdministrator)
}

// writes says whether this call of a tool can change something. Of the door to all operations only the one that is
// named through it can.
func (s *Server) writes(tool string, args json.RawMessage) bool {
	if effect, ok := s.extra[tool]; ok {
		return effect != gate.EffectRead
	}
	o := s.ops[tool]
	if o == nil {
		return false
	}
	if !o.Door() {
		return o.Writes() || o.Effect != gate.EffectRead
	}
	var through struct {
		Operation string `json:"operation"`
	}
	if json.Unmarshal(args, &through) != nil {
		return false // the gate says what is wrong with it
	}
	name := strings.TrimSpace(through.Operation)
	if other := s.ops[name]; other != nil && !other.Door() {
		return other.Writes() || other.Effect != gate.EffectRead
	}
	method, _, isAPI := strings.Cut(name, " ")
	return isAPI && !strings.EqualFold(method, "GET")
}

// through is the call that the door to all operations stands for where it names one that is called by itself only, and that
// the toolset does not show.
func (s *Server) through(tool string, args json.RawMessage) (string, json.RawMessage, bool) {
	door := s.ops[tool]
	if door == nil || !door.Door() {
		return "", nil, false
	}
	var all, own map[string]json.RawMessage
	var name string
	if json.Unmarshal(args, &all) != nil || json.Unmarshal(all["operation"], &name) != nil {
		return "", nil, false // the gate says what is wrong with it
	}
	name = strings.TrimSpace(name)
	if o := s.ops[name]; o == nil || !o.Alone() || s.shown[name] {
		return "", nil, false
	}
	if p := all["params"]; len(p) > 0 && json.Unmarshal(p, &own) != nil {
		return "", nil, false
	}
	if own == nil {
		own = map[string]json.RawMessage{}
	}
	for key, value := range all {
		if key != "operation" && key != "params" {
			own[key] = value
		}
	}
	out, err := json.Marshal(own)
	return name, out, err == nil
}

// PrincipalOf is who sent a request that came over HTTP; nobody for any other.
func PrincipalOf(req mcp.Request) gate.Principal {
	c, _ := callerOf(req)
	return c.Principal
}
