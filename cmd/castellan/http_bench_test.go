package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/mcpserver"
	"castellan/internal/proxmox"
)

const readCurrent = "GET /nodes/{node}/qemu/{vmid}/status/current"

// bareServer is a server of the SDK whose one tool makes the same request to the same lab, and nothing else.
func bareServer(t testing.TB, client *proxmox.Client) string {
	t.Helper()
	s := mcp.NewServer(&mcp.Implementation{Name: "bare", Version: "1"}, nil)
	type readIn struct {
		Node string `json:"node"`
		VMID string `json:"vmid"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "read"}, func(ctx context.Context, _ *mcp.CallToolRequest, in readIn) (*mcp.CallToolResult, any, error) {
		req, err := gate.NewRequest("pve", readCurrent, map[string]any{"node": in.Node, "vmid": in.VMID})
		if err != nil {
			return nil, nil, err
		}
		a, err := client.Read(ctx, "lab", req)
		return nil, a.Data, err
	})
	only := func(*http.Request) *mcp.Server { return s }
	full := mcp.NewStreamableHTTPHandler(only, &mcp.StreamableHTTPOptions{EventStore: mcp.NewMemoryEventStore(nil)})
	less := mcp.NewStreamableHTTPHandler(only, &mcp.StreamableHTTPOptions{Stateless: true})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= "2026-07-28" {
			less.ServeHTTP(w, r)
			return
		}
		full.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(listener) }() // ends with the test
	t.Cleanup(func() { _ = server.Close() })
	return "http://" + listener.Addr().String()
}

// load makes calls over HTTP as fast as they are answered.
type load struct {
	client  *http.Client
	url     string
	headers map[string]string
	body    string // with %d for the id
	calls   atomic.Int64
}

func (l *load) once() error {
	req, err := http.NewRequest(http.MethodPost, l.url, strings.NewReader(fmt.Sprintf(l.body, l.calls.Add(1))))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for k, v := range l.headers {
		req.Header.Set(k, v)
	}
	res, err := l.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK || !bytes.Contains(b, []byte(`"vmid"`)) && !bytes.Contains(b, []byte(`\"vmid\"`)) {
		return fmt.Errorf("%d: %.300s", res.StatusCode, b)
	}
	return nil
}

// burst makes n calls by four clients at a time and gives how long that took.
func (l *load) burst(n int) (time.Duration, error) {
	const clients = 4
	began := time.Now()
	errs := make(chan error, clients)
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			for range n / clients {
				if err := l.once(); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	group.Wait()
	took := time.Since(began)
	select {
	case err := <-errs:
		return 0, err
	default:
		return took, nil
	}
}

// newLoad calls one tool of a server in the era of a version.
func newLoad(t testing.TB, url, version, tool string, args map[string]any) *load {
	t.Helper()
	l := &load{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}, Timeout: patience}, url: url, headers: map[string]string{"MCP-Protocol-Version": version}}
	params := map[string]any{"name": tool, "arguments": args}
	if version >= "2026-07-28" {
		l.headers["Mcp-Method"], l.headers["Mcp-Name"] = "tools/call", tool
		params["_meta"] = map[string]any{"io.modelcontextprotocol/protocolVersion": version, "io.modelcontextprotocol/clientInfo": map[string]any{"name": "load", "version": "1"},
			"io.modelcontextprotocol/clientCapabilities": map[string]any{}}
	} else {
		w := &web{url: url}
		l.headers["Mcp-Session-Id"] = w.open(t, "{}")
	}
	text, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	l.body = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":` + string(text) + "}"
	return l
}

// BenchmarkHTTPRead compares a governed read over HTTP with a bare server of the SDK, in turns: ratio is our calls a second
// over theirs.
func BenchmarkHTTPRead(b *testing.B) {
	s := newSite(b, lab.Config{}, "")
	h := siteHouse(b, s)
	w := newWeb(b, h, nil)
	bare := bareServer(b, h.client)
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		b.Run(version, func(b *testing.B) {
			ours := newLoad(b, w.url, version, "call_operation", map[string]any{"operation": readCurrent, "params": map[string]any{"node": "pve1", "vmid": "101"}})
			theirs := newLoad(b, bare, version, "read", map[string]any{"node": "pve1", "vmid": "101"})
			const calls = 200
			var ratios, mine, other []float64
			for b.Loop() {
				var took [2]time.Duration
				for i, l := range []*load{ours, theirs} {
					var err error
					if took[i], err = l.burst(calls); err != nil {
						b.Fatal(err)
					}
				}
				ratios = append(ratios, took[1].Seconds()/took[0].Seconds())
				mine, other = append(mine, calls/took[0].Seconds()), append(other, calls/took[1].Seconds())
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(middle(ratios), "ratio")
			b.ReportMetric(middle(mine), "calls/s")
			b.ReportMetric(middle(other), "bare-calls/s")
		})
	}
}

func middle(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// held is what the process keeps for its own use, in MiB.
func held() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse+m.StackInuse) / (1 << 20)
}

// BenchmarkHTTPIdleSessions measures what 1,000 idle sessions hold, each after a list of tools and a read.
func BenchmarkHTTPIdleSessions(b *testing.B) {
	const n = 1000
	h := siteHouse(b, newSite(b, lab.Config{}, ""))
	for b.Loop() {
		w := newWeb(b, h, func(c *mcpserver.HTTPConfig) { c.SessionsPerCaller = n })
		id := w.open(b, "{}")
		use := func(id string) {
			for _, body := range []string{`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, callBody("list_nodes", "{}")} {
				if r := w.request(b, "POST", body, "Mcp-Session-Id", id); r.status != 200 || r.answer().Error != nil {
					b.Fatalf("%d %s", r.status, bounded(r.body))
				}
			}
		}
		use(id)
		before := held()
		for range n - 1 {
			use(w.open(b, `{"elicitation":{},"roots":{"listChanged":true}}`))
		}
		http.DefaultClient.CloseIdleConnections()
		if w.http.SessionCount() != n {
			b.Fatalf("%d sessions are open", w.http.SessionCount())
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(held()-before, "MiB")
		b.ReportMetric(float64(runtime.NumGoroutine())/n, "goroutines/session")
		w.http.Close()
	}
}
