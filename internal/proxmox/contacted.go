package proxmox

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"castellan/internal/gate"
)

// contacted names the node that sent a reply: by settings, by the certificate that it showed, or by its own word.
// "" when that cannot be known.
func (k *call) contacted(ctx context.Context, r reply) string {
	for node, a := range k.t.set.Nodes {
		if full, err := address(k.t.set.Kind, a); err == nil && full == r.address {
			return node
		}
	}
	if r.peer == nil {
		return ""
	}
	sum := sha256.Sum256(r.peer.Raw)
	// Several nodes may share a certificate: what one address said holds for that address.
	key := r.address + " " + string(sum[:])
	k.t.mu.Lock()
	known := k.t.nodeOf[key]
	k.t.mu.Unlock()
	if known != "" {
		return known
	}
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	node := k.t.nodeByCertificate(ctx, r.address, colons(sum[:]))
	if node == "" {
		node = k.t.nodeByItsWord(ctx, r.address, sum)
	}
	if node != "" {
		k.t.mu.Lock()
		k.t.nodeOf[key] = node
		k.t.mu.Unlock()
	}
	return node
}

// ask is a plain GET at one address, for what the client needs to know itself.
func (t *target) ask(ctx context.Context, addr, path, query string) (reply, gate.Answer, *gate.UpstreamError) {
	cred, err := t.login.acquire(ctx, addr)
	if err != nil {
		return reply{}, gate.Answer{}, upstream(&loginError{err: err}, false)
	}
	rep, err := t.link.fetch(ctx, addr, gate.Rendered{Method: http.MethodGet, Path: path, Query: query}, &cred)
	if err != nil {
		t.login.report(cred, false, nil)
		return reply{}, gate.Answer{}, upstream(err, false)
	}
	var refused error
	if rep.status == http.StatusUnauthorized && !rep.page() {
		refused = t.refused(rep)
	}
	t.login.report(cred, true, refused)
	answer, fail := rep.answer(t.set.Kind, false)
	return rep, answer, fail
}

func (t *target) nodeByCertificate(ctx context.Context, addr, print string) string {
	_, answer, fail := t.ask(ctx, addr, "/nodes", "")
	if fail != nil {
		return ""
	}
	var nodes []struct {
		Node  string `json:"node"`
		Print string `json:"ssl_fingerprint"`
	}
	if json.Unmarshal(answer.Data, &nodes) != nil {
		return ""
	}
	found := ""
	for _, n := range nodes {
		if strings.EqualFold(n.Print, print) {
			if found != "" {
				return "" // one certificate for several nodes tells nothing
			}
			found = n.Node
		}
	}
	return found
}

func (t *target) nodeByItsWord(ctx context.Context, addr string, peer [32]byte) string {
	rep, answer, fail := t.ask(ctx, addr, "/cluster/status", "")
	if fail != nil || rep.peer == nil || sha256.Sum256(rep.peer.Raw) != peer {
		return ""
	}
	var rows []struct {
		Type  string `json:"type"`
		Name  string `json:"name"`
		Local any    `json:"local"`
	}
	if json.Unmarshal(answer.Data, &rows) != nil {
		return ""
	}
	for _, r := range rows {
		if r.Type == "node" && truth(r.Local) {
			return r.Name
		}
	}
	return ""
}

// otherNode says that the node in the path is surely not the one that was talked to.
func (k *call) otherNode(ctx context.Context, r reply) bool {
	node := k.path["node"]
	if node == "" || node == "localhost" {
		return false
	}
	at := k.contacted(context.WithoutCancel(ctx), r)
	return at != "" && at != node
}

// truth reads the products' booleans: 1, "1", true.
func truth(v any) bool {
	switch x := v.(type) {
	case bool:
		return x
	case float64:
		return x != 0
	case string:
		return x == "1" || x == "true"
	}
	return false
}
