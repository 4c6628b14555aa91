package oauth

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"castellan/internal/store"
)

// second is another process on the same store.
func (h *house) second(t *testing.T) *Server {
	t.Helper()
	st, err := store.Open(context.Background(), store.Config{URL: filepath.Join(h.dir, "state", "castellan.db"), Signer: h.keys.Ledger(), Clock: h.now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	s, err := New(Config{Store: st, Keys: h.keys, Settings: Settings{Failures: 1000, Clients: []StaticClient{{ID: "pub", Redirects: []string{staticRedirect}}}}, Issuer: h.url, People: h.people, Clock: h.now})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestManyAtOnce: of fifty who use the same code, ticket or refresh token on two processes one gets something, and since
// the others knew it too, what it got is ended.
func TestManyAtOnce(t *testing.T) {
	h := newHouse(t, Settings{Failures: 1000, Clients: usual().Clients})
	servers := []*Server{h.s, h.second(t)}
	race := func(name string, f func(s *Server) error) {
		t.Helper()
		var wg sync.WaitGroup
		var good atomic.Int64
		for i := range 50 {
			wg.Go(func() {
				if f(servers[i%2]) == nil {
					good.Add(1)
				}
			})
		}
		wg.Wait()
		if good.Load() != 1 {
			t.Errorf("%s: %d of 50 got something", name, good.Load())
		}
	}
	ask := func(s *Server, form url.Values) (*issued, error) {
		return s.answerToken(ctx, exchange{form: form, cred: credentials{id: "pub"}, from: Remote{IP: netip.MustParseAddr("203.0.113.7")}})
	}
	asked, err := h.s.Authorize(ctx, h.request(), h.from())
	if err != nil {
		t.Fatal(err)
	}
	race("ticket", func(s *Server) error {
		_, err := s.Consent(ctx, asked.Ticket, session("ann"), true, asked.Scopes)
		return err
	})
	code := h.code()
	var mu sync.Mutex
	var got *issued
	race("code", func(s *Server) error {
		out, err := ask(s, h.redeemed(code))
		if err == nil {
			mu.Lock()
			got = out
			mu.Unlock()
		}
		return err
	})
	if got != nil {
		h.mustRefuse(got.Access, "grant_ended")
	}
	r := h.tokens()
	race("refresh", func(s *Server) error {
		out, err := ask(s, h.refreshed(r.Refresh))
		if err == nil {
			mu.Lock()
			got = out
			mu.Unlock()
		}
		return err
	})
	h.mustRefuse(got.Access, "grant_ended")
	// What one process ends is ended for the other.
	r = h.tokens()
	c, err := servers[1].Bearer(ctx, r.Access, Remote{})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.s.RevokeToken(ctx, session("ann"), c.Grant); err != nil {
		t.Fatal(err)
	}
	if _, err := servers[1].Bearer(ctx, r.Access, Remote{}); err == nil {
		t.Error("the other process takes it")
	}
	if v, err := h.store.Verify(ctx); err != nil || !v.OK {
		t.Errorf("the ledger: %+v %v", v, err)
	}
}

// TestManyAddresses: failures of many addresses together do not fill the ledger.
func TestManyAddresses(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of requests")
	}
	h := newHouse(t, usual())
	form := h.redeemed("cac_aaaaaaaaaaaaaaaa_aaaaaaaaaaaaaaaaaaaaaaaa")
	for i := range failuresAll + 20 {
		_, err := h.s.answerToken(ctx, exchange{form: form, cred: credentials{id: "pub"}, from: Remote{IP: netip.MustParseAddr(fmt.Sprintf("2001:db8:%x::1", i))}})
		if asRefused(err).Code != "invalid_grant" {
			t.Fatal(err)
		}
	}
	health, err := h.store.Health(ctx)
	if err != nil || health.Size != failuresAll {
		t.Errorf("%d records, %v", health.Size, err)
	}
	h.recorded("token_denied", "more_are_not_recorded")
	var f folder
	n := 0
	for i := range 3 * foldAll {
		if ok, _ := f.pass(netip.MustParseAddr(fmt.Sprintf("2001:db8:%x::1", i)), h.now()); ok {
			n++
		}
	}
	if n != foldAll {
		t.Errorf("%d of a burst are recorded", n)
	}
}
