package identity_test

import (
	"bufio"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/identity"
)

// provider starts a real OpenID provider in a process of its own and gives its issuer.
func provider(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and runs a provider")
	}
	program := filepath.Join(t.TempDir(), "provider")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = filepath.Join("testdata", "provider")
	build.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the provider: %v\n%s", err, out)
	}
	c := exec.Command(program, origin+identity.OIDCRedirectPath)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := c.Wait(); err != nil {
			t.Errorf("provider: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// browser signs in at the provider's own page and returns what it is sent back with.
func browser(t *testing.T, redirect, user, password string) url.Values {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Jar: jar, Timeout: 10 * time.Second, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), origin) {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	page, err := c.Get(redirect)
	if err != nil {
		t.Fatal(err)
	}
	defer page.Body.Close()
	body, err := io.ReadAll(page.Body)
	if err != nil {
		t.Fatal(err)
	}
	id := regexp.MustCompile(`name="id" value="([^"]+)"`).FindSubmatch(body)
	if id == nil {
		t.Fatalf("no sign-in page: %d %s", page.StatusCode, body)
	}
	back, err := c.PostForm(page.Request.URL.ResolveReference(&url.URL{Path: "/login/username"}).String(), url.Values{"id": {string(id[1])}, "username": {user}, "password": {password}})
	if err != nil {
		t.Fatal(err)
	}
	defer back.Body.Close()
	to, err := back.Location()
	if err != nil {
		b, _ := io.ReadAll(back.Body)
		t.Fatalf("not sent back: %d %s", back.StatusCode, b)
	}
	if !strings.HasPrefix(to.String(), origin+identity.OIDCRedirectPath+"?") {
		t.Fatalf("sent to %s", to)
	}
	return to.Query()
}

func TestOIDCWithARealProvider(t *testing.T) {
	issuer := provider(t)
	secretFile := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secretFile, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(c *identity.Config) {
		c.Settings.OIDC = []identity.OIDCSettings{
			{Name: "web", Issuer: issuer, ClientID: "web", ClientSecretFile: secretFile},
			{Name: "public", Issuer: issuer, ClientID: "native", MapBy: "email", Scopes: []string{"email", "profile"}},
		}
	})
	r.mu.Lock()
	r.at = time.Now().UTC() // the provider's clock
	r.mu.Unlock()
	_, err := r.AddAccount(r.ctx, root, identity.NewAccount{Name: "ann", Roles: []string{"operator"}, Logins: []identity.Login{
		{Way: identity.WayOIDC, Provider: "web", Subject: "id1"}, {Way: identity.WayOIDC, Provider: "public", Email: "Test-User@zitadel.ch"}}})
	r.ok(err)
	for _, name := range []string{"web", "public"} {
		redirect, ticket, err := r.OIDCStart(r.ctx, name)
		r.ok(err)
		q := browser(t, redirect, "test-user@localhost", "verysecure")
		s, err := r.OIDCFinish(r.ctx, ticket, q, remote)
		r.ok(err)
		p, err := r.Session(r.ctx, s.Token)
		r.ok(err)
		if p.Person != "ann" || p.Strength != gate.StrengthSession {
			t.Errorf("%s: signed in as %+v", name, p)
		}
		_, err = r.OIDCFinish(r.ctx, ticket, q, remote)
		r.no(err, "finished before")
		// The provider itself refuses a code with another ticket's verifier.
		redirect, _, err = r.OIDCStart(r.ctx, name)
		r.ok(err)
		stolen := browser(t, redirect, "test-user@localhost", "verysecure")
		redirect, mine, err := r.OIDCStart(r.ctx, name)
		r.ok(err)
		own := browser(t, redirect, "test-user2", "verysecure")
		own.Set("code", stolen.Get("code"))
		_, err = r.OIDCFinish(r.ctx, mine, own, remote)
		r.no(err, "does not take its code")
		// Somebody else there is nobody here.
		redirect, ticket, err = r.OIDCStart(r.ctx, name)
		r.ok(err)
		_, err = r.OIDCFinish(r.ctx, ticket, browser(t, redirect, "test-user2", "verysecure"), remote)
		r.no(err, "")
		r.wait(20 * time.Second)
	}
}
