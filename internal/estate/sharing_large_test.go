package estate

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// One look at a site of 10,000 guests serves all who ask at once: one listing, and each guest's settings once.
func TestSharingOfALargeSite(t *testing.T) {
	if testing.Short() {
		t.Skip("a site of 10,000 guests")
	}
	v := newLab(t, "10000")
	e := New()
	running := 0
	for _, g := range survey(t, New(), v, 0).Inventory().Guests {
		if g.Status != "stopped" && !g.Template && !g.NodeOff {
			running++
		}
	}
	v.count()
	var asked []Cards
	for i := range 24 {
		asked = append(asked, Cards{ID: fmt.Sprint(100 + i), Cards: []string{fmt.Sprintf("BC:24:11:00:AA:%02X", i)}, Fresh: true})
	}
	for _, k := range []struct {
		when     string
		later    time.Duration
		settings int
	}{{"first", 0, running}, {"a minute later", time.Minute, 0}, {"when settings are old", 6 * time.Minute, running}} {
		v.clock = v.clock.Add(k.later)
		began := time.Now()
		found, err := e.SharingOf(t.Context(), v, "lab", asked...)
		took := time.Since(began)
		if err != nil || len(found) != len(asked) || slices.ContainsFunc(found, func(s Sharing) bool { return len(s.Unread)+len(s.Up) > 0 }) {
			t.Errorf("%s: %+v %v", k.when, found, err)
		}
		listings, settings := v.askedFor("/cluster/resources"), v.askedFor("/config")
		all := v.count()
		t.Logf("%s: %d who ask, %d requests (%d listings, %d settings), %v", k.when, len(asked), all, listings, settings, took)
		if listings > 2 || settings > k.settings || all > k.settings+8 {
			t.Errorf("%s: %d requests, %d listings, %d settings", k.when, all, listings, settings)
		}
	}
}

// A guest that is deleted while the site is looked at answers for nobody, and keeps nobody from being patched.
func TestSharingWithAGuestThatGoes(t *testing.T) {
	v := newLab(t, "small")
	var once sync.Once
	do := func(method, path string) {
		if status, why, _ := v.Do(t.Context(), method, "/api2/json"+path, http.Header{"Authorization": {v.Tokens()["admin"]}}, nil); status != http.StatusOK {
			t.Errorf("%s %s: %d %s", method, path, status, why)
		}
	}
	var goes string
	for _, g := range survey(t, New(), v, 0).Inventory().Guests {
		if g.Kind == CT && g.Status == "running" && g.ID != "201" && g.HA == "" {
			goes = "/nodes/" + g.Node + "/lxc/" + g.ID
		}
	}
	v.wait = func(path string) {
		if path == goes+"/config" {
			once.Do(func() {
				do("POST", goes+"/status/stop")
				do("DELETE", goes)
			})
		}
	}
	s, err := New().Sharing(t.Context(), v, "lab", Cards{ID: "201", Cards: []string{"BC:24:11:00:AA:01"}, Fresh: true})
	if err != nil || len(s.Unread) > 0 || len(s.Up) > 0 {
		t.Errorf("%s went: %+v %v", goes, s, err)
	}
	if v.askedFor(goes+"/config") == 0 {
		t.Errorf("%s was not asked for", goes)
	}
}
