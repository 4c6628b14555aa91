// Package console is the server-rendered way in for people: here they approve. It draws what the gate tells and hands
// back what people say; it decides nothing itself.
package console

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"time"

	"castellan/internal/gate"
	"castellan/internal/identity"
)

//go:embed pages/*.html
var pageFiles embed.FS

//go:embed static
var staticFiles embed.FS

// Config is what a console needs. What is nil is said on its page, and the rest works.
type Config struct {
	Gate     Gate
	People   People
	Ways     identity.Settings // the ways to sign in beside password and passkey
	OAuth    OAuth
	Settings Settings
	Switches Switches
	// PublicURL is where browsers reach the console: https, or http on a loopback address. Its host is the passkeys' name.
	PublicURL string
	// OneAccount: agents run under the account that also holds keys and policy, so approvals count as dialog only.
	OneAccount bool
	// From tells where a request came from, through trusted proxies; nil takes the peer's address.
	From  func(*http.Request) netip.Addr
	Clock gate.Clock
	Log   *slog.Logger
}

// Console serves the pages.
type Console struct {
	c      Config
	log    *slog.Logger
	now    func() time.Time
	secure bool
	// exposed: the cookie of a session may be with others. Browsers send it to every port of a host, so over plain http any
	// program on the machine that the person is led to has it; then a session alone approves nothing.
	exposed bool
	origins *http.CrossOriginProtection
	pages   map[string]*template.Template
	static  map[string]asset
	rows    map[gate.Kind]gate.Row
	mux     *http.ServeMux
}

type asset struct {
	body []byte
	kind string
}

// New checks the public URL and reads the pages.
func New(c Config) (*Console, error) {
	if c.Gate == nil || c.People == nil {
		return nil, errors.New("make console: it needs a gate and people")
	}
	u, err := url.Parse(c.PublicURL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("make console: the public URL %q is not https://host", c.PublicURL)
	}
	if u.Scheme == "http" && !loopback(u.Hostname()) {
		return nil, fmt.Errorf("make console: the public URL %q is plain http on a host that is not loopback: session cookies would be readable on the way", c.PublicURL)
	}
	out := &Console{c: c, log: c.Log, now: time.Now, secure: u.Scheme == "https", origins: http.NewCrossOriginProtection(),
		pages: map[string]*template.Template{}, static: map[string]asset{}, rows: map[gate.Kind]gate.Row{}}
	if out.log == nil {
		out.log = slog.New(slog.DiscardHandler)
	}
	if c.Clock != nil {
		out.now = c.Clock
	}
	if err := out.origins.AddTrustedOrigin(u.Scheme + "://" + u.Host); err != nil {
		return nil, fmt.Errorf("make console: %w", err)
	}
	for _, r := range gate.Table() {
		out.rows[r.Kind] = r
	}
	if err := out.parse(); err != nil {
		return nil, fmt.Errorf("make console: %w", err)
	}
	out.exposed = !out.secure && !c.OneAccount // where one account holds all, it approves as a dialog only
	out.mux = out.routes()
	return out, nil
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && a.IsLoopback()
}

// parse reads each page together with the frame around it, and the files beside them.
func (c *Console) parse() error {
	frame, err := template.New("frame.html").Funcs(c.words()).ParseFS(pageFiles, "pages/frame.html", "pages/parts.html")
	if err != nil {
		return err
	}
	names, err := fs.Glob(pageFiles, "pages/*.html")
	if err != nil {
		return err
	}
	for _, name := range names {
		base := path.Base(name)
		if base == "frame.html" || base == "parts.html" {
			continue
		}
		t, err := template.Must(frame.Clone()).ParseFS(pageFiles, name)
		if err != nil {
			return err
		}
		c.pages[strings.TrimSuffix(base, ".html")] = t
	}
	for name, kind := range map[string]string{"style.css": "text/css; charset=utf-8", "passkey.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"} {
		b, err := staticFiles.ReadFile("static/" + name)
		if err != nil {
			return err
		}
		c.static[name] = asset{body: b, kind: kind}
	}
	return nil
}

// Handler serves all pages of the console; its paths are those of Paths.
func (c *Console) Handler() http.Handler { return c.mux }

// Paths lists the patterns that the handler answers, for whoever puts it beside others.
func Paths() []string {
	return []string{"/{$}", "/plans/", "/group", "/signin", "/signin/", "/signout", "/authorize", "/enrol", "/enrol/", "/mandates", "/mandates/", "/activity", "/activity/",
		"/clients", "/clients/", "/approvers", "/approvers/", "/switches", "/switches/", "/settings", "/static/"}
}

func (c *Console) routes() *http.ServeMux {
	m := http.NewServeMux()
	get := func(p string, f func(*visit)) { m.Handle("GET "+p, c.page(false, f)) }
	post := func(p string, f func(*visit)) { m.Handle("POST "+p, c.page(false, f)) }
	m.Handle("GET /signin", c.page(true, c.signinPage))
	m.Handle("POST /signin", c.page(true, c.signin))
	m.Handle("POST /signin/passkey", c.page(true, c.passkeyStart))
	m.Handle("POST /signin/passkey/finish", c.page(true, c.passkeyFinish))
	m.Handle("POST /signin/provider", c.page(true, c.providerStart))
	m.Handle("GET "+identity.OIDCRedirectPath, c.page(true, c.providerFinish))
	m.Handle("POST /signin/proxy", c.page(true, c.proxyLogin))
	m.Handle("POST /signout", c.page(true, c.signout))
	get("/{$}", c.waiting)
	get("/plans/{id}", c.plan)
	post("/plans/{id}/challenge", c.challenge)
	post("/plans/{id}/approve", c.approve)
	post("/plans/{id}/deny", c.deny)
	post("/plans/{id}/run", c.run)
	get("/plans/{$}", c.history)
	get("/group", c.group)
	post("/group", c.approveGroup)
	get("/authorize", c.authorize)
	post("/authorize", c.consent)
	m.Handle("GET /enrol", c.page(true, c.enrolPage)) // a new person may have no other way in than the code
	m.Handle("POST /enrol/start", c.page(true, c.enrolStart))
	m.Handle("POST /enrol/finish", c.page(true, c.enrolFinish))
	post("/enrol/vouch/start", c.vouchStart)
	post("/enrol/vouch", c.vouch)
	post("/enrol/end", c.endSession)
	get("/mandates", c.mandates)
	post("/mandates", c.grant)
	get("/mandates/{id}", c.mandate)
	post("/mandates/{id}/revoke", c.revokeMandate)
	get("/activity", c.activity)
	get("/activity/{tree}/{index}", c.record)
	get("/clients", c.clients)
	post("/clients/revoke", c.revoke)
	get("/approvers", c.approvers)
	post("/approvers/roles", c.setRoles)
	post("/approvers/disable", c.disable)
	post("/approvers/invite", c.invite)
	post("/approvers/passkey", c.removePasskey)
	get("/switches", c.switches)
	post("/switches/kill", c.kill)
	post("/switches/arm", c.arm)
	get("/settings", c.settings)
	post("/settings", c.set)
	m.HandleFunc("GET /static/{name}", c.file)
	m.Handle("/", c.page(true, func(v *visit) {
		c.refuse(v, http.StatusNotFound, "There is no such page", "The menu shows what there is.")
	}))
	return m
}

func (c *Console) file(w http.ResponseWriter, r *http.Request) {
	headers(w.Header())
	a, ok := c.static[r.PathValue("name")]
	if !ok {
		http.Error(w, "there is no such file", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", a.kind)
	w.Header().Set("Cache-Control", "public, max-age=300")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.body))
}

// sheet is what every page shows around its own content.
type sheet struct {
	Title      string
	At         string // path of the menu entry
	Who        gate.Principal
	In         bool
	Form       string // the token of forms
	Decides    bool
	Admin      bool
	OneAccount bool
	Stopped    string // why no write passes now
	By         string // who stopped it, or what cannot be told
	Grave      bool
	Refresh    int // seconds until the page is asked for again; 0 = never
	Leave      string
	Script     bool
	Notice     string
	Body       any
}

// draw renders a page whole before a byte is sent.
func (c *Console) draw(v *visit, status int, name string, s sheet) {
	s.Who, s.In, s.Form, s.OneAccount = v.who, v.in(), v.form, c.c.OneAccount
	s.Decides, s.Admin = v.in() && c.decides(v), v.in() && c.administers(v)
	if c.c.Switches != nil && v.in() {
		c.stopped(v, &s)
	}
	var b bytes.Buffer
	if err := c.pages[name].ExecuteTemplate(&b, "frame.html", s); err != nil {
		c.log.Error("a page cannot be drawn", "page", name, "error", err)
		http.Error(v.w, "This page cannot be drawn; the log of castellan says why. Nothing was done by looking at it.", http.StatusInternalServerError)
		return
	}
	v.w.Header().Set("Content-Security-Policy", contentPolicy(v.actions))
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(status)
	_, _ = v.w.Write(b.Bytes()) // the browser is gone
}

// stopped says on every page what keeps all writes from passing.
func (c *Console) stopped(v *visit, s *sheet) {
	switch sw, err := c.c.Switches.Switches(v.ctx); {
	case err != nil:
		s.Stopped, s.By, s.Grave = "Whether writes are stopped cannot be read now.", gate.AsError(err).Message, true
	case sw.Contained != "":
		s.Stopped, s.By, s.Grave = "All writes are stopped by the configuration.", sw.Contained, true
	case sw.Killed != "":
		s.Stopped, s.By, s.Grave = "All writes are stopped. The kill switch is on:", sw.Killed, true
	case sw.ArmingNeeded && !c.now().Before(sw.ArmedUntil):
		s.Stopped = "Writes are not armed: nothing is carried out before somebody opens the armed window."
	}
}

type trouble struct {
	Title, Text, Hint string
	Upstream          string
	Back              string
}

// refuse says what went wrong and what to do next.
func (c *Console) refuse(v *visit, status int, title, text string) {
	c.draw(v, status, "trouble", sheet{Title: title, Body: trouble{Title: title, Text: text}})
}

// fail shows an error of the gate, of identity or of the authorization server.
func (c *Console) fail(v *visit, err error) { c.failAt(v, err, "") }

func (c *Console) failAt(v *visit, err error, back string) {
	e := gate.AsError(err)
	status, title := http.StatusInternalServerError, "Something went wrong"
	switch e.Kind {
	case gate.ErrInvalid:
		status, title = http.StatusBadRequest, "This cannot be taken"
	case gate.ErrNotFound:
		status, title = http.StatusNotFound, "There is no such thing"
	case gate.ErrDenied:
		status, title = http.StatusForbidden, "This is not allowed"
	case gate.ErrNeedsApproval:
		status, title = http.StatusForbidden, "This does not count as an approval"
	case gate.ErrStale:
		status, title = http.StatusConflict, "Things have moved on"
	case gate.ErrUnavailable:
		status, title = http.StatusServiceUnavailable, "This is not possible now"
	case gate.ErrUnknownOutcome:
		status, title = http.StatusAccepted, "What became of it is not known"
	}
	text := e.Message
	switch e.Changed {
	case "nothing":
		text += ". Nothing was changed."
	case "":
	default:
		text += ". Changed: " + e.Changed + "."
	}
	if e.Kind == gate.ErrInternal {
		c.log.Error("a request of the console failed", "path", v.r.URL.Path, "error", e.Message)
	}
	c.draw(v, status, "trouble", sheet{Title: title, Body: trouble{Title: title, Text: text, Hint: e.Hint, Upstream: e.Upstream, Back: back}})
}
