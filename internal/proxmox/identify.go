package proxmox

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"castellan/internal/gate"
)

// Identify names the site behind a target: cluster (or node) name and the fingerprint of the cluster's CA, or of a
// certificate where the CA cannot be seen. It is asked once. "" means that the site cannot be told; an error means
// that it could not be asked now.
func (c *Client) Identify(ctx context.Context, name string) (string, error) {
	t, err := c.target(name)
	if err != nil {
		return "", err
	}
	t.mu.Lock()
	known := t.site
	t.mu.Unlock()
	if known != "" {
		return known, nil
	}
	if t.set.Kind != kindPVE {
		return c.identifyOther(ctx, t)
	}
	nodes, err := c.nodes(ctx, t)
	if err != nil {
		return "", err
	}
	title, err := c.clusterName(ctx, t)
	if err != nil {
		return "", err
	}
	if title == "" && len(nodes) == 1 {
		title = nodes[0].Node
	}
	print, err := c.clusterCA(ctx, t, nodes)
	if err != nil {
		return "", err
	}
	if print == "" && len(nodes) > 0 {
		print = nodes[0].Print
	}
	return t.keep(title, print), nil
}

// keep joins name and fingerprint and remembers the site.
func (t *target) keep(title, print string) string {
	print = strings.ToLower(strings.ReplaceAll(print, ":", ""))
	site := ""
	switch {
	case print == "":
		return ""
	case title == "":
		site = t.set.Kind + "-" + print[:min(16, len(print))]
	default:
		site = clean(title, 64) + "-" + print[:min(16, len(print))]
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.site = site
	return site
}

type nodeRow struct {
	Node   string `json:"node"`
	Status string `json:"status"`
	Print  string `json:"ssl_fingerprint"`
}

func (c *Client) nodes(ctx context.Context, t *target) ([]nodeRow, error) {
	answer, err := c.readAs(ctx, t, "GET /nodes", nil)
	if err != nil {
		return nil, unseen(err)
	}
	var rows []nodeRow
	if err := json.Unmarshal(answer.Data, &rows); err != nil {
		return nil, nil
	}
	rows = slices.DeleteFunc(rows, func(r nodeRow) bool { return r.Node == "" })
	slices.SortFunc(rows, func(a, b nodeRow) int { return strings.Compare(a.Node, b.Node) })
	return rows, nil
}

func (c *Client) clusterName(ctx context.Context, t *target) (string, error) {
	answer, err := c.readAs(ctx, t, "GET /cluster/status", nil)
	if err != nil {
		return "", unseen(err)
	}
	var rows []struct {
		Type string `json:"type"`
		Name string `json:"name"`
	}
	if json.Unmarshal(answer.Data, &rows) != nil {
		return "", nil
	}
	nodes := ""
	for _, r := range rows {
		if r.Type == "cluster" {
			return r.Name, nil
		}
		if r.Type == "node" && nodes == "" {
			nodes = r.Name
		}
	}
	return nodes, nil
}

// clusterCA asks the nodes for the fingerprint of the CA that they share.
func (c *Client) clusterCA(ctx context.Context, t *target, nodes []nodeRow) (string, error) {
	var last error
	for _, n := range nodes {
		answer, err := c.readAs(ctx, t, "GET /nodes/{node}/certificates/info", map[string]any{"node": n.Node})
		if err != nil {
			if last = unseen(err); last == nil {
				return "", nil // refused for good: no node says it
			}
			continue
		}
		var rows []struct {
			File  string `json:"filename"`
			Print string `json:"fingerprint"`
		}
		if json.Unmarshal(answer.Data, &rows) != nil {
			return "", nil
		}
		for _, r := range rows {
			if r.File == "pve-root-ca.pem" {
				return r.Print, nil
			}
		}
		return "", nil
	}
	return "", last
}

// unseen turns a refusal for good into nothing, and keeps what may be otherwise the next time: an identity must not
// depend on which call happened to fail.
func unseen(err error) error {
	if e := asUpstream(err); e != nil && (e.Status == http.StatusForbidden || e.Status == http.StatusNotImplemented || e.Status == http.StatusNotFound || e.Status == http.StatusBadRequest) {
		return nil
	}
	return err
}

// identifyOther names single servers by the certificate that they show.
func (c *Client) identifyOther(ctx context.Context, t *target) (string, error) {
	addr := t.link.order()[0]
	rep, answer, fail := t.ask(ctx, addr, "/version", "")
	if fail != nil {
		return "", fail
	}
	t.noteVersion(answer)
	if rep.peer == nil {
		return "", nil
	}
	return t.keep("", fingerprint(rep.peer)), nil
}

func (t *target) noteVersion(a gate.Answer) {
	var v struct {
		Version string `json:"version"`
		Release string `json:"release"`
	}
	if json.Unmarshal(a.Data, &v) != nil || v.Version == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.version = clean(v.Version, 40)
}
