package pve

import (
	"strings"
	"testing"
	"time"

	"castellan/internal/patch"
)

func ready(change func(r *patch.Report)) patch.Report {
	r := patch.Report{System: patch.System{Supported: true, Family: patch.APT}, Fresh: true, Packages: patch.State{Clean: true}}
	change(&r)
	return r
}

// What stands against installing stands against "up to date" too.
func TestNotUpToDate(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*patch.Report)
		want   string
	}{
		"well":    {func(*patch.Report) {}, verdictCurrent},
		"unclean": {func(r *patch.Report) { r.Packages = patch.State{Problems: []string{"demo is half-configured"}} }, verdictUnknown},
		"lock":    {func(r *patch.Report) { r.Lock = &patch.Lock{PID: 7, Program: "apt"} }, verdictUnknown},
		"running": {func(r *patch.Report) { r.Running = "p_x.2" }, verdictUnknown},
		"clock":   {func(r *patch.Report) { r.ClockOff = 1 << 20 }, verdictUnknown},
		"frozen": {func(r *patch.Report) {
			r.Clock = time.Now()
			r.Releases = []patch.Release{{Archive: "Debian:bookworm", Sort: patch.Official, Date: r.Clock.AddDate(0, -3, 0)}, {Archive: "Debian-Security:bookworm-security", Sort: patch.Security, Date: r.Clock.AddDate(0, 0, -11)}}
		}, verdictUnknown},
		"moving": {func(r *patch.Report) {
			r.Clock = time.Now()
			r.Releases = []patch.Release{{Archive: "Debian:bookworm", Sort: patch.Official, Date: r.Clock.AddDate(0, -3, 0)}, {Archive: "Debian-Security:bookworm-security", Sort: patch.Security, Date: r.Clock.AddDate(0, 0, -9)}}
		}, verdictCurrent},
		"its updates stand still": {func(r *patch.Report) {
			r.Clock = time.Now()
			r.Releases = []patch.Release{{Archive: "Ubuntu:noble", Sort: patch.Official, Date: r.Clock.AddDate(-1, 0, 0)}, {Archive: "Ubuntu:noble-updates", Sort: patch.Official, Date: r.Clock.AddDate(0, 0, -11)}, {Archive: "Ubuntu:noble-security", Sort: patch.Security, Date: r.Clock}}
		}, verdictUnknown},
		"updates that say until when": {func(r *patch.Report) {
			r.Clock = time.Now()
			r.Releases = []patch.Release{{Archive: "Debian:bookworm-updates", Sort: patch.Official, Date: r.Clock.AddDate(0, 0, -11), Until: r.Clock.AddDate(0, 0, 1)}}
		}, verdictCurrent},
		"its clock stands as the archive does": {func(r *patch.Report) {
			r.Clock, r.ClockOff = time.Now().AddDate(0, 0, -11), -11*24*3600
			r.Releases = []patch.Release{{Archive: "Ubuntu:noble-security", Sort: patch.Security, Date: r.Clock}}
		}, verdictUnknown},
		"held": {func(r *patch.Report) { r.Pending = []patch.Pending{{Name: "a", Why: "held"}} }, verdictHeld},
		"held, with a lock": {func(r *patch.Report) {
			r.Pending, r.Lock = []patch.Pending{{Name: "a", Why: "held"}}, &patch.Lock{PID: 7}
		}, verdictUnknown},
	} {
		if verdict, why := judged(ready(c.change)); verdict != c.want || (verdict == verdictUnknown) != (len(why) > 0) {
			t.Errorf("%s: %s %q", name, verdict, why)
		}
	}
}

// Each thing that stands against installing has a next step of its own.
func TestWayOut(t *testing.T) {
	gone := patch.Transaction{{Action: patch.Remove, Name: "old"}}
	for name, c := range map[string]struct {
		change func(*patch.Report)
		want   string
	}{
		"lock":             {func(r *patch.Report) { r.Lock = &patch.Lock{PID: 7} }, "Wait until"},
		"repair":           {func(r *patch.Report) { r.Packages = patch.State{Repair: true} }, "repair_packages finishes"},
		"past repair":      {func(r *patch.Report) { r.Packages = patch.State{} }, "does not help"},
		"clock":            {func(r *patch.Report) { r.ClockOff = -1 << 20 }, "Set its clock"},
		"space":            {func(r *patch.Report) { r.Space = []patch.Space{{Path: "/boot", Free: 1, Need: 2}} }, "Make room on /boot"},
		"removes":          {func(r *patch.Report) { r.All = gone }, "for a person"},
		"removes, not all": {func(r *patch.Report) { r.All, r.Security = gone, patch.Transaction{{Action: patch.Upgrade, Name: "a"}} }, "Mode security removes nothing"},
	} {
		if hint := wayOut(ready(c.change), "all"); !strings.Contains(hint, c.want) || !strings.HasSuffix(hint, "hen call again.") {
			t.Errorf("%s: %q", name, hint)
		}
	}
}

// A unit that is started over and over is not well between two starts, and what is degraded is not well without a name.
func TestServicesWell(t *testing.T) {
	unit := patch.Unit{Name: "a.service", Active: "active", Sub: "running"}
	for name, c := range map[string]struct {
		house patch.House
		want  string
	}{
		"well":       {patch.House{State: "running", Units: []patch.Unit{unit}}, "well"},
		"failed":     {patch.House{State: "degraded", Units: []patch.Unit{{Name: "b.service", Active: "failed"}}}, "failing"},
		"crash loop": {patch.House{State: "running", Units: []patch.Unit{unit, {Name: "b.service", Active: "activating", Sub: "auto-restart", Restarts: 9}}}, "failing"},
		"queued":     {patch.House{State: "running", Units: []patch.Unit{{Name: "b.service", Active: "activating", Sub: "auto-restart-queued"}}}, "failing"},
		"degraded":   {patch.House{State: "degraded", Units: []patch.Unit{unit}}, "not_known"},
		"nothing":    {patch.House{State: "running"}, "not_known"},
	} {
		var out checkServicesOut
		if out.of(c.house, false); out.Verdict != c.want {
			t.Errorf("%s: %+v", name, out)
		}
	}
}
