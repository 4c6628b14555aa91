package console

import (
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
)

// reaching is a plan that hits much, with names that try to break out of where they stand.
func reaching(id string, at time.Time) *gate.PlanRecord {
	r := rollback(id, "101", at)
	o := func(kind gate.ObjectKind, id string) gate.Object { return gate.Object{Kind: kind, ID: id} }
	r.Plan.Facts.Objects = append(r.Plan.Facts.Objects, gate.ObjectFacts{Object: o(gate.ObjectGuest, "102"), Use: gate.UseHits, Name: `<script>alert(1)</script>`, Known: true})
	r.Plan.Facts.Reach = gate.Reach{Oldest: at.Add(-time.Minute), Unread: []string{`content of pve1/"><img src=x onerror=alert(1)>: 403`}, Unwalked: []string{"POST /nodes/{node}/qemu/{vmid}/status/shutdown"}, Hits: []gate.Hit{
		{Step: 2, Class: "loses_data", Weight: gate.WeightDanger, Object: o(gate.ObjectGuest, "102"), Way: []gate.Object{o(gate.ObjectStorage, "nas"), o(gate.ObjectVolume, "nas:101/base-101-disk-0.raw"), o(gate.ObjectGuest, "102")}, Text: `</text></svg><script>alert(2)</script> loses scsi0`, Unknown: true},
		{Step: 2, Class: "loses_way_back", Weight: gate.WeightDanger, Object: o(gate.ObjectSnapshot, "101/younger"), Way: []gate.Object{o(gate.ObjectGuest, "101")}, Text: "the younger snapshot goes"},
		{Step: 1, Class: "stops", Weight: gate.WeightCaution, Object: o(gate.ObjectGuest, "101"), Text: "web101 stops for two minutes"},
		{Step: 1, Class: "blocked", Weight: gate.WeightNote, Object: o(gate.ObjectHA, "vm:101"), Text: "\u202egnp.exe is managed", Blocks: true},
	}}
	return r
}

func TestReachIsDrawnAndTold(t *testing.T) {
	w := newWorld(t)
	w.gate.add(reaching("p1", w.at.Add(-time.Minute)))
	c := w.signedIn("boss", "battery staple")
	page := c.get("/plans/p1")
	for _, want := range []string{`<svg xmlns="http://www.w3.org/2000/svg"`, "What it hits beyond that", "loses scsi0", "guest 102", "nas:101/base-101-disk-0.raw", "the younger snapshot goes", "stops for two minutes", "not known, so it counts",
		"Proxmox will refuse it", "No walk is known for", "Could not be read", "content of pve1/", "the gravest: "} {
		if !strings.Contains(page.body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, bad := range []string{"<script>alert", "<img src=x", "\u202e", "</text></svg><script>", " style="} {
		if strings.Contains(page.body, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	svg := page.body[strings.Index(page.body, "<svg xmlns"):]
	svg = svg[:strings.Index(svg, "</svg>")]
	if danger, note := strings.Index(svg, "box danger"), strings.Index(svg, "box note"); danger < 0 || note < danger {
		t.Errorf("the gravest does not come first: danger at %d, note at %d", danger, note)
	}
}

func TestReachThatWasNotWalked(t *testing.T) {
	w := newWorld(t)
	w.gate.add(rollback("p1", "101", w.at.Add(-time.Minute)))
	found := rollback("p2", "102", w.at.Add(-time.Minute))
	found.Plan.Facts.Reach.Oldest = w.at
	w.gate.add(found)
	part := rollback("p3", "103", w.at.Add(-time.Minute))
	part.Plan.Facts.Reach = gate.Reach{Oldest: w.at, Unread: []string{"acl: 403"}}
	w.gate.add(part)
	c := w.signedIn("boss", "battery staple")
	for id, want := range map[string]string{"p1": "was not walked for this plan", "p2": "Nothing was found that depends on it", "p3": "the look was not complete"} {
		if page := c.get("/plans/" + id); !strings.Contains(page.body, want) {
			t.Errorf("%s lacks %q", id, want)
		}
	}
}
