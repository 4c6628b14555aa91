package lab

import (
	"context"
	"net/http"
	"sort"
	"strings"
	"time"

	"castellan/internal/catalog/facts"
)

// call is one request that found its operation.
type call struct {
	l      *Lab
	s      *state
	op     *facts.Operation
	rel    string
	method string
	p      map[string]any // parameters, those of the path included
	user   caller
	node   *node // that of the path, resolved; the local one where the path has none
	local  *node // the node that took the connection
	up     *upload
	format string
	token  string // CSRF header
}

// handler carries out one operation. Its value becomes "data"; a full answer may be given as *result.
type handler func(*call) (any, error)

// result is a value with what goes beside "data", or an answer of another kind.
type result struct {
	data    any
	total   any
	changes any
	raw     *response
	delay   time.Duration
}

// Do answers one request without a network. The header may be nil.
func (l *Lab) Do(ctx context.Context, method, target string, header http.Header, body []byte) (status int, reason string, answer []byte) {
	if header == nil {
		header = http.Header{}
	}
	a := l.answer(ctx, &request{method: method, target: target, header: header, body: body})
	if a == nil || a.cut != cutNone || !sleep(ctx, a.delay) {
		return 0, "", nil
	}
	return a.status, a.reason, a.body
}

// authDelay is what a failed login costs the caller.
const authDelay = 3 * time.Second

// answer carries one request out; nil means that the connection is to be cut.
func (l *Lab) answer(ctx context.Context, r *request) *response {
	l.mu.Lock()
	now := l.clock().Add(l.offset)
	l.s.run(now)
	path, query := splitTarget(r.target)
	rec := Request{Method: r.method, Path: path, Time: now}
	a, f := l.product.process(r, path, query, &rec)
	l.s.run(now)
	if !l.cfg.Delays && a != nil && (f == nil || f.kind != faultSlow) {
		a.delay = 0
	}
	if a != nil && a.cut != cutBefore {
		rec.Status = a.status
	}
	l.record(rec)
	l.mu.Unlock()
	return a
}

func (l pve) process(r *request, path, query string, rec *Request) (*response, *fault) {
	switch r.method {
	case "GET", "PUT", "POST", "DELETE":
	default:
		return bareAnswer(501, "method '"+r.method+"' not available"), nil
	}
	m := uriForm.FindStringSubmatch(path)
	if m == nil {
		return l.page(r, path), nil
	}
	format, rel := m[1], m[2]
	if rel == "" {
		rel = "/"
	}
	rec.Path = rel
	f := l.matchFault(r.method, rel)
	if f != nil {
		if a, done := f.before(); done {
			return a, f
		}
	}
	a := l.api(r, format, rel, query, rec)
	if f != nil {
		a = f.after(a)
	}
	return a, f
}

// page answers what lies outside the API.
func (l pve) page(r *request, path string) *response {
	if path == "/" || path == "" {
		return &response{status: 200, reason: "OK", ctype: "text/html; charset=utf-8", body: []byte("<!DOCTYPE html>\n<html><head><title>" + l.s.api0().name + " - Proxmox Virtual Environment</title></head><body></body></html>\n")}
	}
	if strings.HasPrefix(path, "/api2") {
		return plainAnswer(501, "no such uri")
	}
	return bareAnswer(404, "no such file '"+path+"'")
}

func (l pve) api(r *request, format, rel, query string, rec *Request) *response {
	s := l.s
	local := s.api0()
	if r.via != "" {
		if n := s.node(r.via); n != nil {
			local = n
		}
	}
	if local.state == NodeOff || local.state == NodeNoDaemon || local.state == NodeHanging {
		return nil
	}
	user, refused := s.authenticate(r, rel)
	rec.User = user.id()
	if refused != nil {
		a := bareAnswer(401, refused.msg)
		a.delay = authDelay
		return a
	}
	params, up, early := readParams(r, format, rel, query)
	if early != nil {
		return early
	}
	for k := range params {
		rec.Keys = append(rec.Keys, k)
	}
	sort.Strings(rec.Keys)
	if !formatters[format] {
		return plainAnswer(501, "no formatter for uri "+rel+", "+format)
	}
	c := &call{l: l.Lab, s: s, rel: rel, method: r.method, p: params, user: user, local: local, node: local, up: up, format: format, token: r.header.Get("CSRFPreventionToken")}
	v, err := c.carryOut()
	return c.render(v, err)
}

// readParams merges query and body; early is an answer that ends the call.
func readParams(r *request, format, rel, query string) (params map[string]any, up *upload, early *response) {
	params = map[string]any{}
	ctype := r.header.Get("Content-Type")
	if len(r.body) > 0 {
		if r.method != "PUT" && r.method != "POST" {
			return nil, nil, plainAnswer(501, "Unexpected content for method '"+r.method+"'")
		}
		base, _, _ := strings.Cut(ctype, ";")
		base = strings.ToLower(strings.TrimSpace(base))
		switch base {
		case "", "application/x-www-form-urlencoded", "application/json":
			if len(r.body) > maxBody {
				return nil, nil, plainAnswer(501, "for data too large")
			}
			if base == "application/json" {
				m, f := parseJSON(r.body)
				if f != nil {
					return nil, nil, plainAnswer(500, f.msg+"\n")
				}
				params = m
			} else {
				params = parseForm(string(r.body))
			}
		case "multipart/form-data":
			m, u, err := parseMultipart(ctype, r.body)
			if err != nil {
				return nil, nil, plainAnswer(501, "upload without boundary")
			}
			params, up = m, u
		default:
			return nil, nil, plainAnswer(506, "upload 'Content-Type '"+ctype+"' not implemented")
		}
	}
	for k, v := range parseForm(query) {
		params[k] = v // the query wins over the body
	}
	delete(params, "_dc")
	return params, up, nil
}

// carryOut goes through the checks in the genuine order: path, token, permission, proxy, parameters, method.
func (c *call) carryOut() (any, error) {
	op, path := c.l.ops.find(c.method, c.rel)
	if op == nil || c.s.rel.lacks(op.Path) {
		return nil, &failure{code: 501, msg: "Method '" + c.method + " " + c.rel + "' not implemented"}
	}
	c.op = op
	for k, v := range path {
		if sent, ok := c.p[k]; ok {
			if t, isText := sent.(string); !isText || t != v {
				return nil, bad(k, "duplicate parameter (already defined in URI) with conflicting values!")
			}
		}
		c.p[k] = v
	}
	if c.user.token != "" && op.NoToken {
		return nil, denied("URI '" + c.rel + "' not available with API token, need proper ticket.\n")
	}
	if err := c.permission(); err != nil {
		return nil, err
	}
	if err := c.reach(); err != nil {
		return nil, err
	}
	if err := c.l.checks.check(op, c.p); err != nil {
		return nil, err
	}
	if err := c.quorum(); err != nil {
		return nil, err
	}
	if h := c.l.serve[op]; h != nil {
		return h(c)
	}
	return c.generic()
}

const (
	proxyTimeout = 30 * time.Second
	noRouteDelay = 2 * time.Second
)

// reach finds the node that has to do it, and tells what stands in between.
func (c *call) reach() error {
	name, _ := c.p["node"].(string)
	target := c.local
	if name != "" && name != "localhost" {
		n := c.s.node(name)
		if c.op.ProxyTo == "node" {
			if n == nil {
				return c.s.resolveFailure(name)
			}
			target = n
		}
		if n != nil {
			c.node = n
		}
	}
	if name == "localhost" && c.op.ProxyTo == "node" {
		c.p["node"] = c.local.name
	}
	if target != c.local {
		switch target.state {
		case NodeOff:
			return &failure{code: 595, msg: "No route to host", bare: true, delay: noRouteDelay}
		case NodeNoDaemon:
			return &failure{code: 595, msg: "Connection refused", bare: true}
		case NodeHanging:
			return &failure{code: 596, msg: "Connection timed out", bare: true, delay: proxyTimeout}
		}
	}
	if c.op.Protected {
		switch target.state {
		case NodeBackendDown:
			return &failure{code: 595, msg: "Connection refused", bare: true}
		case NodeBackendHangs:
			again := *c
			c.s.pendingCalls[target.name] = append(c.s.pendingCalls[target.name], func() { again.late() })
			return &failure{code: 596, msg: "Connection timed out", bare: true, delay: proxyTimeout}
		}
	}
	return nil
}

// late carries out what hung in the backend when the caller had already been told of a time-out.
func (c *call) late() {
	if err := c.l.checks.check(c.op, c.p); err != nil {
		return
	}
	if h := c.l.serve[c.op]; h != nil {
		_, _ = h(c)
	} else {
		_, _ = c.generic()
	}
}

// resolveFailure is what asking a node says that is no member.
func (s *state) resolveFailure(name string) error {
	switch {
	case looksLikeIP(name):
		return die("address lookup for '%s' did not find any IP address", name)
	case s.aliasOf(name):
		return &failure{code: 596, msg: "error:0A000086:SSL routines::certificate verify failed", bare: true}
	}
	return die("hostname lookup '%s' failed - failed to get address info for: %s: Temporary failure in name resolution", name, name)
}

// aliasOf tells whether a name resolves to a member without being its name (other case, with domain).
func (s *state) aliasOf(name string) bool {
	short, domain, _ := strings.Cut(strings.ToLower(name), ".")
	n := s.node(short)
	return n != nil && (domain == "" || domain == "lab.test")
}
