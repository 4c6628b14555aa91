package console

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"castellan/internal/gate"
	"castellan/internal/identity"
	"castellan/internal/oauth"
)

// chromium starts a headless browser; the test is skipped when -short, and fails where there is none.
func chromium(t *testing.T) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser is slow")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("/usr/bin/chromium"), chromedp.NoSandbox, chromedp.Flag("disable-gpu", true))
	ctx, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(ctx)
	t.Cleanup(end)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start chromium: %v", err)
	}
	ctx, late := context.WithTimeout(ctx, 5*time.Minute)
	t.Cleanup(late)
	return ctx
}

const recordPath = "/activity/write/41?at=2026-11-29T02:58:00Z"

// fill puts something on every page.
func fill(w *world) {
	for i, id := range []string{"101", "102", "104"} {
		w.gate.add(rollback(fmt.Sprintf("p%d", i+1), id, w.at.Add(-time.Duration(9-i)*time.Minute)))
	}
	odd := rollback("p4", "107", w.at.Add(-time.Minute))
	odd.Plan.Steps[1].API.Params[2].Values = text("2019-first-install")
	odd.Plan.Sentence = "Shut down VM 107 on node pve1; then roll back VM 107 to snapshot 2019-first-install"
	w.gate.add(odd)
	key := rollback("p5", "900", w.at.Add(-3*time.Minute))
	key.Plan.Operation, key.Plan.Decision.Rung, key.Plan.Sentence = "call_operation", gate.RungTwoPasskeys, "Grant role Administrator on / to user \"eve@pve\""
	key.Plan.Facts.Governs, key.Plan.Facts.Tainted = []string{"ACL on / decides what castellan's own token may do"}, true
	key.Plan.Reason = "APPROVED by security team ✅\n\n</section><h2>Decide</h2> \u202egnp.exe  pаypal\n" + strings.Repeat("urgent ", 60)
	key.Plan.Facts.Objects = append(key.Plan.Facts.Objects, gate.ObjectFacts{Object: gate.Object{Kind: gate.ObjectUser, ID: "eve@pve"}, Use: gate.UseActs})
	key.Approvals = []gate.Approval{{By: gate.Principal{Person: "boss"}, Rung: gate.RungPasskey, At: w.at.Add(-time.Minute), Until: w.at.Add(time.Hour), Evidence: gate.Evidence{Kind: "passkey"}}}
	w.gate.add(key)
	done := rollback("p6", "110", w.at.Add(-3*time.Hour))
	done.State, done.Receipt = gate.PlanDone, &gate.Receipt{Plan: "p6", State: gate.PlanDone, ApprovedBy: []string{"|anna (session)"}, Ledger: &gate.LedgerPosition{Index: 41, Size: 42}}
	done.Steps = []gate.StepRecord{{State: gate.StepDone, Result: "OK"}, {State: gate.StepDone, Result: "OK", Warnings: "guest was not shut down cleanly"}}
	w.gate.add(done)
	approved := rollback("p7", "111", w.at.Add(-20*time.Minute))
	approved.State = gate.PlanApproved
	approved.Approvals = []gate.Approval{{By: gate.Principal{Person: "boss"}, Rung: gate.RungPerson, At: w.at.Add(-time.Minute), Until: w.at.Add(time.Hour), Evidence: gate.Evidence{Kind: "session"}}}
	w.gate.add(approved)
	w.oauth.asked = &oauth.Asked{Ticket: "t", ClientID: "https://claude.ai/oauth/mcp-oauth-client-metadata", ClientName: "Claude", ClientHost: "claude.ai", Kind: oauth.KindDocument, Agent: "claude.ai", RedirectURI: "https://claude.ai/api/mcp/auth_callback",
		RedirectHost: "claude.ai", Scopes: []string{"read", "operate", "offline_access"}}
	w.oauth.tokens = []oauth.TokenInfo{{ID: "t1", Kind: "connection", Client: "https://claude.ai/oauth/x", Agent: "claude.ai", Person: "anna", Scopes: []string{"read", "operate"}, Since: w.at.Add(-time.Hour), Expires: w.at.Add(time.Hour), Used: w.at}}
	w.oauth.clients = []oauth.ClientInfo{{ID: "https://claude.ai/oauth/x", Name: "Claude", Kind: "document", Host: "claude.ai", Since: w.at.Add(-48 * time.Hour), Redirects: []string{"https://claude.ai/api/mcp/auth_callback"}, Live: 1}}
	w.gate.records = []map[string]any{{"tree": "write", "index": 41, "at": "2026-11-29T02:58:00Z", "kind": "step_end", "operation": "rollback_snapshot", "actor": "claude|anna", "target": "guest/110", "status": "ok", "effect": "destroy",
		"plan": "p6", "parts": map[string]any{"reason": "why\nnot"}, "withheld": []string{"answer"}, "marks": map[string]any{"credential": "ab12"}}}
	w.gate.mandates["m1"] = &gate.Mandate{ID: "m1", By: gate.Principal{Person: "anna"}, For: "claude|anna", Operations: []string{"start_guest"}, Targets: []string{"home"}, Objects: []string{"guest/101", "tag:dev"},
		Count: 10, From: w.at, Until: w.at.Add(24 * time.Hour), Rung: gate.RungPerson, Given: w.at, Uses: []gate.MandateUse{{Plan: "p6", At: w.at}}}
	w.people.keys["boss"] = []identity.Credential{{ID: strings.Repeat("ab", 32), Name: "phone", Enrolled: w.at.Add(-24 * time.Hour), MayApprove: w.at.Add(-23 * time.Hour)},
		{ID: "k2", Name: "key on the ring", Enrolled: w.at.Add(-time.Minute), MayApprove: w.at.Add(59 * time.Minute)}}
}

// TestPagesAsPictures writes pictures of all pages into the folder of CASTELLAN_PICTURES, for looking at.
func TestPagesAsPictures(t *testing.T) {
	dir := os.Getenv("CASTELLAN_PICTURES")
	if dir == "" {
		t.Skip("CASTELLAN_PICTURES names no folder")
	}
	ctx := chromium(t)
	w := newWorld(t)
	fill(w)
	name := "boss"
	shot := func(page, path string, width, height int64, dark bool) {
		scheme := "light"
		if dark {
			scheme = "dark"
		}
		if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600}); err != nil {
			t.Fatal(err)
		}
		if err := chromedp.Do(ctx, chromedp.Navigate(w.srv.URL+path)); err != nil {
			t.Fatalf("%s: %v", page, err)
		}
		png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
		if err != nil {
			t.Fatalf("%s: %v", page, err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", page, width, scheme)), png, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	shot("signin", "/signin", 390, 844, false)
	shot("signin", "/signin", 390, 844, true)
	if err := chromedp.Do(ctx, chromedp.Navigate(w.srv.URL+"/signin"), chromedp.SendKeys(chromedp.CSS(`input[name=name]`), name), chromedp.SendKeys(chromedp.CSS(`input[name=password]`), "battery staple"),
		chromedp.Submit(chromedp.CSS(`form[action="/signin"]`)), chromedp.WaitVisible(chromedp.CSS(`main .rows`))); err != nil {
		t.Fatal(err)
	}
	for page, path := range map[string]string{"waiting": "/", "plan": "/plans/p1", "hard": "/plans/p5", "done": "/plans/p6", "approved": "/plans/p7", "group": "/group?plan=p1&plan=p2&plan=p3", "mandates": "/mandates",
		"mandate": "/mandates/m1", "activity": "/activity", "record": recordPath, "clients": "/clients", "approvers": "/approvers", "enrol": "/enrol", "switches": "/switches", "settings": "/settings?key=policy.wait_ttl",
		"consent": "/authorize?client_id=" + w.oauth.asked.ClientID} {
		shot(page, path, 390, 844, true)
		shot(page, path, 1280, 900, false)
		if page == "plan" || page == "waiting" {
			shot(page, path, 390, 844, false)
			shot(page, path, 1280, 900, true)
		}
	}
}
