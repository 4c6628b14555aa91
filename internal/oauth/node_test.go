package oauth

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestTypeScriptClients: what most clients are made of connects from nothing but the URL, registers, and refreshes.
func TestTypeScriptClients(t *testing.T) {
	home, node := nodeHome(t)
	site := newSite(t)
	id := site.id("/client.json")
	site.does(give(doc(id, "http://127.0.0.1/callback")))
	type told struct {
		Registered, Sent    int
		Scope, First, Again string
		Refreshed           bool
	}
	for name, tt := range map[string]struct {
		sdk, client string
		want        told
	}{
		"v1 dynamic":  {"v1", "", told{1, 1, "read operate offline_access", "dynamic:loopback:typescript|ann", "dynamic:loopback:typescript|ann", true}},
		"v2 dynamic":  {"v2", "", told{1, 1, "read operate offline_access", "dynamic:loopback:typescript|ann", "dynamic:loopback:typescript|ann", true}},
		"v1 static":   {"v1", "pub", told{0, 1, "read operate offline_access", "static:pub|ann", "static:pub|ann", true}},
		"v2 static":   {"v2", "pub", told{0, 1, "read operate offline_access", "static:pub|ann", "static:pub|ann", true}},
		"v1 document": {"v1", id, told{0, 1, "read operate offline_access", "example.com:loopback|ann", "example.com:loopback|ann", true}},
		"v2 document": {"v2", id, told{0, 1, "read operate offline_access", "example.com:loopback|ann", "example.com:loopback|ann", true}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, usual(), func(c *Config) { c.Fetch = site.fetch() })
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, node, "testdata/client.mjs", tt.sdk, h.url+"/mcp", tt.client)
			cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "CASTELLAN_NODE_DIR="+home, "NO_COLOR=1")
			cmd.WaitDelay = 5 * time.Second
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			err := cmd.Run()
			var got told
			if err != nil || json.Unmarshal(out.Bytes(), &got) != nil {
				t.Fatalf("%v: %s\n%s", err, out.String(), errs.String())
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}
