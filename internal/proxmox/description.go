package proxmox

import (
	"context"
	"fmt"
	"net/http"
)

// descriptions are where each product publishes its own API description.
func descriptionPath(kind string) string {
	switch kind {
	case kindPVE:
		return "/pve-docs/api-viewer/apidoc.js"
	case kindPMG:
		return "/pmg-docs/api-viewer/apidoc.js"
	}
	return "/docs/api-viewer/apidoc.js"
}

// Description fetches the API description that a target publishes. It is an untrusted text of at most 32 MiB: parse
// it as data. No credential is sent: the page is public.
func (c *Client) Description(ctx context.Context, name string) ([]byte, error) {
	t, err := c.target(name)
	if err != nil {
		return nil, err
	}
	var last error
	for _, addr := range t.link.order() {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+addr+descriptionPath(t.set.Kind), nil)
		if err != nil {
			return nil, fmt.Errorf("fetch API description: %w", err)
		}
		for header, values := range t.link.headers {
			req.Header[header] = values
		}
		req.Header.Set("User-Agent", "castellan")
		rep, err := t.link.trip(t.link.pool, addr, req, nil, nil)
		switch {
		case err != nil:
			last = err
		case rep.cut != nil:
			last = fmt.Errorf("%s: half of it came: %w", addr, rep.cut)
		case rep.status != http.StatusOK:
			last = fmt.Errorf("%s answered %d %s", addr, rep.status, clean(rep.reason, 100))
		default:
			return rep.body, nil
		}
	}
	return nil, fmt.Errorf("fetch API description of %s: %w", name, last)
}
