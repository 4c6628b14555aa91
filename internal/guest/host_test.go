package guest

import (
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"castellan/internal/frame"
	"castellan/internal/gate"
	"castellan/internal/patch"
)

// packagesOf lets a node's bridge tell of packages: state is what it knows, by word or by the id of an upgrade.
type packagesOf struct {
	mu    sync.Mutex
	boots []string // what status tells, one after the other; the last stays
	last  patch.Outcome
	house patch.House
	check string // instead of a report
	cuts  int    // of connections during an upgrade
}

func aHouse(down ...string) patch.House {
	h := patch.House{BootID: "b1", State: "running", Ports: []patch.Port{{Proto: "tcp", Address: "0.0.0.0", Port: 8006}}}
	for _, d := range daemons {
		u := patch.Unit{Name: d, Active: "active", Sub: "running", Enabled: true}
		for _, x := range down {
			if x == d {
				u.Active, u.Sub = "inactive", "dead"
			}
		}
		h.Units = append(h.Units, u)
	}
	return h
}

const askedChange = "upgrade pve-manager:all 9.1.1 9.1.4 Proxmox:trixie/pve-enterprise"

func ended(t testing.TB, id string) patch.Outcome {
	t.Helper()
	asked, err := patch.ParseTransaction([]string{askedChange})
	if err != nil {
		t.Fatal(err)
	}
	zero, before, after := 0, aHouse(), aHouse()
	return patch.Outcome{ID: id, State: "ended", Mode: "full", Exit: &zero, Asked: asked, Done: asked, Packages: patch.State{Clean: true}, Before: &before, After: &after, Log: "Setting up\x1b[31m pve-manager"}
}

func (p *packagesOf) answer(t testing.TB, n *node) func(a frame.Ask, put func(frame.Tell), raw io.Writer, cut func()) {
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	return func(a frame.Ask, put func(frame.Tell), _ io.Writer, cut func()) {
		p.mu.Lock()
		defer p.mu.Unlock()
		tell := frame.Tell{ID: a.ID, Ending: frame.Done}
		switch {
		case a.Word == nil:
			t.Errorf("asked %+v", a)
		case a.Word.Name == wordUpgrade:
			if p.cuts > 0 {
				p.cuts--
				out := frame.Tell{ID: a.ID, Ending: frame.Done, Text: text(p.last)}
				time.AfterFunc(500*time.Millisecond, func() {
					n.mu.Lock()
					n.ends[a.ID] = out
					n.mu.Unlock()
				})
				cut()
				return
			}
			tell.Text = text(p.last)
		case a.Word.Args["word"] == "check":
			tell.Text = p.check
			if tell.Text == "" {
				tell.Text = text(patch.Report{Fresh: true, Clock: time.Now().Add(time.Hour), All: p.last.Asked, Stale: "x\x1b[2J\u202ey"})
			}
		case a.Word.Args["word"] == "status":
			tell.Text = text(patch.Report{BootID: p.boots[0]})
			if len(p.boots) > 1 {
				p.boots = p.boots[1:]
			}
		case a.Word.Args["word"] == "services":
			tell.Text = text(p.house)
		case a.Word.Args["word"] == "result":
			tell.Text = text(p.last)
		default:
			tell.Text = "Unpacking\x1b]0;x\x07 pve-manager"
		}
		put(tell)
	}
}

func ofNode(t testing.TB, word string, params map[string]any) gate.Request {
	t.Helper()
	params["node"] = "pve1"
	return request(t, word, params)
}

func TestPackagesOfANode(t *testing.T) {
	n := newNode(t)
	p := &packagesOf{last: ended(t, "p1.3"), house: aHouse(), boots: []string{"b1", "b1", "b2"}}
	n.answer = p.answer(t, n)
	r := runnerTo(t, newSite(), bridgesTo(t, n, nil))
	up := ofNode(t, "upgrade", map[string]any{"mode": "full", "package": []string{askedChange}})

	t.Run("an upgrade tells what became of it", func(t *testing.T) {
		res, err := carry(t, r, up, "p1.3")
		var o patch.Outcome
		if err != nil || !res.OK || json.Unmarshal(res.Report, &o) != nil || len(o.Done) != 1 || strings.Contains(o.Log, "\x1b") {
			t.Fatalf("%+v %v", res, err)
		}
		for _, a := range n.asks(frame.Manage) {
			if a.Word.Name == wordUpgrade && (a.Word.Args["packages"] != askedChange || a.Place.Where != frame.Host || a.Word.Args["newer"] != "") {
				t.Errorf("%+v", a)
			}
		}
	})
	t.Run("a cut connection is looked after, and nothing is started twice", func(t *testing.T) {
		p.mu.Lock()
		p.last, p.cuts = ended(t, "p2.3"), 1
		p.mu.Unlock()
		res, err := carry(t, r, up, "p2.3")
		if err != nil || !res.OK {
			t.Fatalf("%+v %v", res, err)
		}
		asked := 0
		for _, a := range n.asks(frame.Manage) {
			if a.ID == "p2.3" {
				asked++
			}
		}
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
		if res, running, err := r.Look(t.Context(), "lab", up, "p2.3", ""); err != nil || running || !res.OK {
			t.Errorf("%+v %v %v", res, running, err)
		}
	})
	t.Run("what did not begin, and what is another's", func(t *testing.T) {
		p.mu.Lock()
		p.last = patch.Outcome{ID: "p3.3", State: "refused", Stale: "apt would now also remove x"}
		p.mu.Unlock()
		if _, err := carry(t, r, up, "p3.3"); !notStarted(err) || !strings.Contains(err.Error(), "also remove x") {
			t.Errorf("%v", err)
		}
		if res, err := carry(t, r, up, "p4.3"); err == nil || notStarted(err) {
			t.Errorf("of another upgrade: %+v %v", res, err)
		}
		p.mu.Lock()
		p.last = ended(t, "p5.3")
		p.last.State = "lost"
		p.mu.Unlock()
		if res, err := carry(t, r, up, "p5.3"); err != nil || res.OK || res.ExitCode != nil {
			t.Errorf("lost: %+v %v", res, err)
		}
	})
	t.Run("verify believes this plan's upgrade alone, and looks at what runs now", func(t *testing.T) {
		verify := ofNode(t, "updates", map[string]any{"word": "verify"})
		p.mu.Lock()
		p.last = ended(t, "p6.3")
		p.mu.Unlock()
		dials := n.dialled()
		if res, err := carry(t, r, verify, "p6.4"); err != nil || !res.OK {
			t.Errorf("%+v %v", res, err)
		}
		if n.dialled() == dials {
			t.Error("over the connection of before")
		}
		for _, id := range []string{"p7.4", "p6", "x"} {
			if res, err := carry(t, r, verify, id); err != nil || res.OK || *res.ExitCode != 1 {
				t.Errorf("%s: %+v %v", id, res, err)
			}
		}
		for name, change := range map[string]func(){"down": func() { p.house = aHouse("pveproxy") }, "missing": func() { p.last.Missing = p.last.Asked }, "beyond": func() { p.last.Beyond = p.last.Asked }, "unclean": func() { p.last.Packages.Clean = false }} {
			p.mu.Lock()
			p.last, p.house = ended(t, "p8.3"), aHouse()
			change()
			p.mu.Unlock()
			if res, err := carry(t, r, verify, "p8."+name); err != nil || res.OK || res.Note == "" {
				t.Errorf("%s: %+v %v", name, res, err)
			}
		}
	})
	t.Run("a new boot is waited for", func(t *testing.T) {
		res, err := carry(t, r, ofNode(t, "updates", map[string]any{"word": "status", "other-than": "b1"}), "p9.5")
		if err != nil || !res.OK || !strings.Contains(string(res.Report), `"b2"`) {
			t.Errorf("%+v %v", res, err)
		}
	})
	t.Run("reports are bounded and clean", func(t *testing.T) {
		check := ofNode(t, "updates", map[string]any{"word": "check"})
		res, err := carry(t, r, check, "q1")
		if err != nil || strings.Contains(string(res.Report), `\u001b`) || strings.Contains(string(res.Report), "\u202e") {
			t.Errorf("%s %v", res.Report, err)
		}
		for _, bad := range []string{"{", `{"surprise":1}`, "[]", `{"all":[{"action":"upgrade","name":"a b","arch":"all","old":"1","new":"2","archive":"x"}]}`, `{"stale":"` + strings.Repeat("x", 3<<20) + `"}`} {
			p.mu.Lock()
			p.check = bad
			p.mu.Unlock()
			if res, err := carry(t, r, check, "q2"+bad[:min(3, len(bad))]); err == nil || len(res.Report) > 0 {
				t.Errorf("%.40s: %+v", bad, res)
			}
		}
		if res, err := carry(t, r, ofNode(t, "updates", map[string]any{"word": "progress"}), "q3"); err != nil || strings.Contains(res.Said, "\x1b") || !strings.Contains(res.Said, "Unpacking") {
			t.Errorf("%+v %v", res, err)
		}
	})
}

// A bridge whose words are off is said to be so before anything is planned.
func TestLaneOfANode(t *testing.T) {
	n := newNode(t)
	b := bridgesTo(t, n, nil)
	l, err := NewLanes(LanesConfig{Targets: []string{"lab"}, Bridges: b})
	if err != nil {
		t.Fatal(err)
	}
	up := ofNode(t, "upgrade", map[string]any{"mode": "full", "package": []string{askedChange}})
	if said := l.Judge(t.Context(), nil, "lab", up, nil); said.Refused != "" {
		t.Errorf("of a bridge that was not asked yet: %+v", said)
	}
	if _, err := b.of("lab", "pve1").get(t.Context(), testSite); err != nil {
		t.Fatal(err)
	}
	if said := l.Judge(t.Context(), nil, "lab", up, nil); !strings.Contains(said.Refused, "switched off") || !strings.Contains(said.Hint, "words") {
		t.Errorf("%+v", said)
	}
	if said := l.Judge(t.Context(), nil, "lab", request(t, "upgrade", map[string]any{"node": "pve2", "mode": "full", "package": []string{askedChange}}), nil); !strings.Contains(said.Refused, "no bridge") {
		t.Errorf("%+v", said)
	}
}
