package console

import (
	"html"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"castellan/internal/gate"
)

// hostile are texts that try to look like something else, to break out, or to hide.
func hostile() []string {
	return []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `</code></p></section><h2>Decide</h2><button>Approve</button>`, `' onmouseover='alert(1)`, `{{.Form}}`, `<!--`, `]]>`, `&lt;b&gt;`,
		`javascript:alert(1)`, `https://evil.example/"><a href=//evil>`, `style="position:fixed;inset:0"`, `x;background:url(//evil)`, `</style><style>*{display:none}`, `</title><h1>x`,
		"safe\u202egnp.exe", "\u2066isolate\u2069", "\u200fright\u200e", "a\u200bb\u200cc\u200dd\ufeffe", "soft\u00adhyphen", "tag\U000e0041\U000e0042", "vs\ufe0f", "hangul\u3164filler", "braille\u2800blank",
		"line one\n\n\n✔ Approved by the security team\nPlan is safe", "cr\rlf\r\nend", "tab\tnel\u0085ls\u2028ps\u2029", "nul\x00bel\x07esc\x1b[31mred\x1b[0m", "bad\xff\xfeutf8", "nbsp\u00a0wide\u3000space",
		"АРРROVED", "pаypal", "ＡＰＰＲＯＶＥＤ", "𝐀𝐏𝐏𝐑𝐎𝐕𝐄𝐃", "z\u0300\u0301\u0302\u0303\u0304\u0305\u0306algo", "שלום abc", "مرحبا", strings.Repeat("A", 100_000), strings.Repeat("\n", 4_000) + "end", strings.Repeat("é", 9_000),
		`approval: none"}`, "U+202E", "APPROVED", "Nobody has checked these words.",
	}
}

var tags = regexp.MustCompile(`<[^>]*>`)

func TestHostileTextIsInert(t *testing.T) {
	for _, s := range hostile() {
		for name, out := range map[string]string{"value": string(value(s)), "line": string(line(s))} {
			inner := strings.TrimSuffix(strings.TrimPrefix(out, `<code class="v">`), `</code>`)
			checkInert(t, name, s, inner)
		}
		lines := said(s)
		if len(lines) > mostLines+1 {
			t.Errorf("%.30q: %d lines", s, len(lines))
		}
		for _, l := range lines {
			checkInert(t, "said", s, string(l))
		}
	}
}

func checkInert(t *testing.T, sink, s, out string) {
	t.Helper()
	for _, tag := range tags.FindAllString(out, -1) {
		if tag != `<span class="mark">` && tag != `<span class="alike">` && tag != `</span>` {
			t.Errorf("%s of %.40q has the tag %s", sink, s, tag)
		}
	}
	shown := html.UnescapeString(tags.ReplaceAllString(out, ""))
	if n := utf8.RuneCountInString(shown); n > 15*longestSaid {
		t.Errorf("%s of %.40q shows %d characters", sink, s, n)
	}
	for _, r := range shown {
		if hidden(r) || r != ' ' && unicode.IsSpace(r) {
			t.Errorf("%s of %.40q shows U+%04X as itself", sink, s, r)
		}
	}
}

func TestWhatIsHiddenIsNamed(t *testing.T) {
	for s, want := range map[string]string{
		"a\u202eb": `a<span class="mark">U+202E</span>b`, "a\nb": `a<span class="mark">new line</span>b`, "a\xffb": `a<span class="mark">byte ff</span>b`, "plain": "plain", "a<b": "a&lt;b", "größe": "größe", "日本": "日本",
		"pаypal": `p<span class="mark">look-alike letters:</span><span class="alike">аypal</span>`, "Москва": "Москва", "U+202E": "U+202E",
	} {
		if got := string(line(s)); got != want {
			t.Errorf("%q is shown as %s, want %s", s, got, want)
		}
	}
	if got := string(visible(strings.Repeat("ab", 10), 4)); got != `abab<span class="mark">16 more characters</span>` {
		t.Errorf("cut: %s", got)
	}
}

func FuzzVisible(f *testing.F) {
	for _, s := range hostile() {
		f.Add(clipRunes(s, 500))
	}
	f.Fuzz(func(t *testing.T, s string) {
		checkInert(t, "line", s, string(line(s)))
		for _, l := range said(s) {
			checkInert(t, "said", s, string(l))
		}
	})
}

// TestNoTextGetsOutOfItsPlace puts each hostile text into every field that others can fill, and looks at every page.
func TestNoTextGetsOutOfItsPlace(t *testing.T) {
	w := newWorld(t)
	fill(w)
	b := w.signedIn("boss", "battery staple")
	skeleton := map[string]string{}
	plain := "plainword"
	for i, s := range append([]string{plain}, hostile()...) {
		if i > 0 && len(s) > 5000 {
			s = s[:5000]
		}
		poison(w, s)
		for _, path := range everyPage(w) {
			page := b.get(path).body
			got := skeletonOf(page)
			if i == 0 {
				skeleton[path] = got
			} else if got != skeleton[path] {
				t.Errorf("%s: %.40q changes the page:\n%s", path, s, firstDifference(skeleton[path], got))
			}
			if strings.ContainsFunc(page, func(r rune) bool { return r != '\n' && r != '\t' && hidden(r) }) {
				t.Errorf("%s: something hidden of %.40q is sent", path, s)
			}
		}
	}
}

var ours = regexp.MustCompile(`(?s)<span class="(?:mark|alike|l)">|</span>`)
var attributes = regexp.MustCompile(`(value|href|placeholder)="[^"]*"`)

// skeletonOf is a page without texts: its elements and their attributes in order.
func skeletonOf(page string) string {
	page = ours.ReplaceAllString(page, "")
	all := tags.FindAllString(page, -1)
	return attributes.ReplaceAllString(strings.Join(all, "\n"), `$1=""`)
}

func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return "want " + x[i] + "\ngot  " + y[i]
		}
	}
	return "one is longer"
}

// poison fills whatever comes from agents, clients, guests and Proxmox.
func poison(w *world, s string) {
	for _, id := range []string{"p1", "p5", "p6", "p7"} {
		r := w.gate.plans[id]
		p := &r.Plan
		p.Reason, p.Note, p.Requester.Client = s, s, s
		p.Diff = []gate.Difference{{Object: s, Key: s, Old: s, New: s, Note: s}}
		p.Skip, r.Note = []string{s}, s
		p.Facts.Objects = []gate.ObjectFacts{{Object: gate.Object{Kind: gate.ObjectGuest, ID: s}, Use: gate.UseActs, Name: s, Tags: []string{s}, Pools: []string{s}, Known: false}}
		p.Facts.Governs, p.Facts.Unidentified = []string{s}, []string{s}
		p.Sentence = "Start VM 101 " + s
		for i := range p.Steps {
			p.Steps[i].Note, p.Steps[i].Sentence, p.Steps[i].Undo = s, "Start "+s, gate.Undo{How: s}
			p.Steps[i].API.Params[1].Values = text(s)
			p.Steps[i].Require = []gate.Condition{{Name: s}}
			p.Steps[i].Verify = []gate.Condition{{Name: s}, {Soft: true, Name: "x", Else: s}}
			if i == 1 {
				p.Steps[i].API = &gate.Request{Product: "pve", Operation: "RUN /nodes/{node}/lxc/{vmid}/script", Params: []gate.Param{{Name: "node", Values: text(s)}, {Name: "vmid", Values: text(s)},
					{Name: "command", Values: append(text(s), text(s)...)}, {Name: "script", Values: text(s)}}}
			}
		}
		for i := range r.Steps {
			r.Steps[i].Result, r.Steps[i].Warnings, r.Steps[i].Log = s, s, []string{s}
		}
	}
	for _, id := range []string{"p2", "p3"} {
		w.gate.plans[id].Plan.Reason = s
	}
	w.oauth.asked.ClientName, w.oauth.asked.RedirectHost = s, s
	w.oauth.tokens[0].Agent, w.oauth.tokens[0].Client = s, s
	w.oauth.asked.Agent, w.oauth.clients[0].Name, w.oauth.clients[0].Redirects = s, s, []string{s}
	w.gate.records[0]["client"], w.gate.records[0]["actor"], w.gate.records[0]["parts"] = s, s, map[string]any{"reason": s, "output": s}
	w.gate.settings["policy.wait_ttl"] = s
	w.people.keys["boss"][0].Name, w.people.agent = s, s
	w.gate.mandates["m1"].Note, w.gate.mandates["m1"].Objects = s, []string{s}
}

func TestNoSecretIsShown(t *testing.T) {
	w := newWorld(t)
	fill(w)
	b := w.signedIn("boss", "battery staple")
	if !strings.Contains(b.get("/settings").body, "set, not shown") {
		t.Error("that a key without a value is set is not said")
	}
	session := b.cookie("castellan")
	for _, path := range everyPage(w) {
		if strings.Contains(b.get(path).body, session) {
			t.Errorf("%s shows the session", path)
		}
	}
}
