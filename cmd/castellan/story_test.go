//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"castellan/internal/gate"
	"castellan/internal/seal"
	"castellan/internal/store"
)

// window is a real browser with a passkey of its own.
type window struct {
	t   *testing.T
	ctx context.Context
}

func openWindow(t *testing.T) *window {
	t.Helper()
	if _, err := os.Stat("/usr/bin/chromium"); err != nil && os.Getenv("CI") == "" {
		t.Skip("chromium is not installed")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("/usr/bin/chromium"), chromedp.NoSandbox, chromedp.Flag("disable-gpu", true))
	ctx, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(ctx)
	t.Cleanup(end)
	ctx, late := context.WithTimeout(ctx, 4*time.Minute)
	t.Cleanup(late)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start chromium: %v", err)
	}
	w := &window{t, ctx}
	if _, err := chromedp.Call(ctx, webauthn.Enable, webauthn.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{Options: &webauthn.VirtualAuthenticatorOptions{Protocol: "ctap2", Transport: "internal",
		HasResidentKey: true, HasUserVerification: true, IsUserVerified: true, AutomaticPresenceSimulation: true}}); err != nil {
		t.Fatal(err)
	}
	return w
}

type move = chromedp.Action[chromedp.Void]

func at(selector string) chromedp.CSS { return chromedp.CSS(selector) }
func see(selector string) move        { return chromedp.WaitVisible(at(selector)) }
func click(selector string) move      { return chromedp.Click(at(selector)) }
func enter(selector, text string) move {
	return chromedp.SendKeys(at(selector), text)
}

// does carries moves out, and shows where the browser was when one fails.
func (w *window) does(what string, moves ...move) error {
	limited, stop := context.WithTimeout(w.ctx, 30*time.Second)
	defer stop()
	err := chromedp.Do(limited, moves...)
	for range 3 { // a page that was still coming got in the way of the first move, which goes to another
		if err == nil || !strings.Contains(err.Error(), "net::ERR_ABORTED") {
			break
		}
		err = chromedp.Do(limited, moves...)
	}
	if err != nil {
		where, _ := chromedp.Run(w.ctx, chromedp.Location())
		body, _ := chromedp.Run(w.ctx, chromedp.Text(at("body")))
		return fmt.Errorf("%s: %w\nat %s\n%.3000s", what, err, where, body)
	}
	return nil
}

func (w *window) must(what string, moves ...move) {
	w.t.Helper()
	if err := w.does(what, moves...); err != nil {
		w.t.Fatal(err)
	}
}

const annsPassword = "a long pass phrase of ann"

// TestStory is the whole of it, with nothing stood in for: the daemon under an account of its own, a client that knows
// only the URL, a person with a real browser and a passkey, and a sceptic with an export and a public key.
func TestStory(t *testing.T) {
	c := newCastle(t, `"ANN"`)
	text, err := os.ReadFile(c.config)
	if err != nil {
		t.Fatal(err)
	}
	c.write("castellan.toml", string(text)+"\n[policy.rungs]\nrollback = \"passkey\"\n")
	if err := os.Chown(c.config, int(c.own.uid), int(c.own.gid)); err != nil {
		t.Fatal(err)
	}
	c.start()
	if ok, highest, health := c.separate(); !ok || highest != "two_passkeys" {
		t.Fatalf("the daemon's account is not its own: %s", health)
	}
	secret := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(secret, []byte(annsPassword), 0o600); err != nil {
		t.Fatal(err)
	}
	root := func(args ...string) string {
		t.Helper()
		out, errs, code := c.do(nil, nil, args...)
		if code != 0 {
			t.Fatalf("%v: exit %d: %s%s", args, code, out, errs)
		}
		return out
	}
	root("people", "add", "ann", "--role", "operator,approver", "--password-file", secret)
	var invited struct{ Code string }
	decode(t, []byte(root("people", "code", "ann", "--json")), &invited)

	// A client connects from nothing but the URL; ann signs in in her browser and lets it act for her.
	_, port, _ := net.SplitHostPort(c.address)
	base := "http://localhost:" + port
	w := openWindow(t)
	back := make(chan *auth.AuthorizationResult, 1)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	home := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); q.Has("code") {
			back <- &auth.AuthorizationResult{Code: q.Get("code"), State: q.Get("state"), Iss: q.Get("iss")}
		}
		fmt.Fprint(rw, "<p id=back>you may go back</p>")
	})}
	go func() { _ = home.Serve(listener) }() // ends with the listener
	t.Cleanup(func() { _ = home.Close() })
	redirect := "http://" + listener.Addr().String() + "/callback"
	consented := 0
	handler, err := auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{RedirectURL: redirect, RequestRefreshToken: true,
		DynamicClientRegistrationConfig: &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{RedirectURIs: []string{redirect}, ClientName: "Story",
			GrantTypes: []string{"authorization_code", "refresh_token"}}},
		AuthorizationCodeFetcher: func(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			moves := []move{chromedp.Navigate(args.URL)}
			if consented++; consented == 1 {
				moves = append(moves, see(`input[name=name]`), enter(`input[name=name]`, "ann"), enter(`input[name=password]`, annsPassword), click(`form[action="/signin"] button`))
			}
			moves = append(moves, see(`button[name=answer][value=allow]`), enter(`form[action="/authorize"] input[name=password]`, annsPassword), click(`button[name=answer][value=allow]`), see(`#back`))
			if err := w.does("let the client in", moves...); err != nil {
				return nil, err
			}
			select {
			case r := <-back:
				return r, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(10 * time.Second):
				return nil, fmt.Errorf("the browser did not come back")
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "story", Version: "1"}, nil)
	s, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: base + "/mcp", OAuthHandler: handler, MaxRetries: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	call := func(tool string, args map[string]any) answer {
		t.Helper()
		r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
		if err != nil {
			t.Fatalf("%s: %v", tool, err)
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var a answer
		decode(t, b, &a)
		return a
	}
	if a := call("snapshot_guest", map[string]any{"guest": "101", "name": "before"}); a.IsError || a.Structured.Status != "done" {
		t.Fatalf("a snapshot: %+v", a)
	}

	// A client that speaks tasks asks for a rollback and gets a task with a link; nothing has changed.
	source, err := handler.TokenSource(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	token, err := source.Token()
	if err != nil {
		t.Fatal(err)
	}
	modern := func(method, name string, params map[string]any) taskSeen {
		t.Helper()
		params["_meta"] = map[string]any{"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": speaksTasks,
			"io.modelcontextprotocol/clientInfo": map[string]any{"name": "story", "version": "1"}}
		body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), "POST", base+"/mcp", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range map[string]string{"Authorization": "Bearer " + token.AccessToken, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
			"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name} {
			req.Header.Set(k, v)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			if data, ok := strings.CutPrefix(line, "data:"); ok {
				raw = []byte(strings.TrimSpace(data))
			}
		}
		var m message
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatalf("%s: %d %s", method, resp.StatusCode, raw)
		}
		return taskOf(t, m)
	}
	task := modern("tools/call", "rollback_snapshot", map[string]any{"name": "rollback_snapshot", "arguments": map[string]any{"guest": "101", "name": "before", "reason": "the update broke it"}})
	page := base + "/plans/" + task.TaskID
	if task.ResultType != "task" || !strings.Contains(task.StatusMessage, page) {
		t.Fatalf("%+v", task)
	}
	if a := call("apply_plan", map[string]any{"plan": task.TaskID}); !a.IsError {
		t.Fatalf("the agent applied a plan that waits for a person: %+v", a)
	}

	// Ann enrols her passkey with the code that root printed, reads the page, and approves.
	w.must("enrol", chromedp.Navigate(base+"/enrol"), see(`input[name=code]`), enter(`input[name=name]`, "ann's key"), enter(`input[name=code]`, invited.Code), click(`button[data-passkey=create]`), see(`.cards .hash`))
	w.must("read", chromedp.Navigate(page), see(`button[data-passkey=get]:enabled`))
	shown, err := chromedp.Run(w.ctx, chromedp.Text(at("main")))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"101", "before", "/snapshot/before/rollback", "the update broke it"} {
		if !strings.Contains(shown, part) {
			t.Errorf("the page does not say %q:\n%s", part, shown)
		}
	}
	if strings.Index(shown, "the update broke it") < strings.Index(shown, "/snapshot/before/rollback") {
		t.Error("the agent's words come before the request")
	}
	w.must("approve", click(`button[data-passkey=get]`), see(`.approvals`))

	// The task completes, and the receipt is genuine for whoever has the public key and an export.
	var done taskSeen
	for deadline := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		if done = modern("tasks/get", task.TaskID, map[string]any{"taskId": task.TaskID}); done.Status == "completed" {
			break
		}
		if time.Now().After(deadline) || done.Status == "failed" || done.Status == "cancelled" {
			t.Fatalf("%+v", done)
		}
	}
	var a answer
	decode(t, done.Result, &a)
	if a.IsError || a.Structured.Status != "done" {
		t.Fatalf("%s", done.Result)
	}
	dir := t.TempDir()
	keep := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	receipt, key := keep("receipt.json", root("receipt", task.TaskID)), keep("key.pem", root("audit", "key"))
	check := func(log string) {
		t.Helper()
		out := root("audit", "verify", "--receipt", receipt, "--key", key, "--export", log)
		for _, part := range []string{"genuine", "Approved by |ann at passkey", "signature checked", "contains every head"} {
			if !strings.Contains(out, part) {
				t.Errorf("the receipt's verification does not say %q: %s", part, out)
			}
		}
	}
	check(keep("log", root("audit", "export")))
	forged := strings.Replace(string(mustRead(t, receipt)), `"verdict": "approve"`, `"verdict": "deny"`, 1)
	if out, errs, code := c.do(nil, nil, "audit", "verify", "--receipt", keep("forged.json", forged), "--key", key); code == 0 {
		t.Errorf("a forged receipt verified: %s%s", out, errs)
	}

	// Retention drops the texts; what was proven stays proven.
	sweepLater(t, c)
	swept := root("audit", "export")
	if strings.Contains(swept, "the update broke it") {
		t.Error("the sweep left the agent's words in the log")
	}
	check(keep("swept", swept))
}

// sweepLater removes what is older than a day, two days from now.
func sweepLater(t *testing.T, c *castle) {
	t.Helper()
	own := func(uid, gid uint32) {
		t.Helper()
		err := filepath.Walk(c.dir, func(path string, _ os.FileInfo, err error) error {
			return errors.Join(err, os.Chown(path, int(uid), int(gid)))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	own(0, 0) // this process is root's, and takes nothing of another account
	defer own(c.own.uid, c.own.gid)
	keys, err := seal.OpenKeys(filepath.Join(c.dir, "keys"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), store.Config{URL: filepath.Join(c.dir, "state", "castellan.db"), Signer: keys.Ledger(), Clock: func() time.Time { return time.Now().Add(48 * time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Sweep(t.Context(), store.Retention{For: 24 * time.Hour, By: gate.Principal{Person: "root", Strength: gate.StrengthAccount}, Sure: true})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	if got.Parts == 0 && got.Records == 0 {
		t.Errorf("nothing was swept: %+v", got)
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
