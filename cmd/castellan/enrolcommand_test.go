//go:build unix

package main

import (
	"testing"

	"castellan/internal/lab"
)

// Enrolment asks on a terminal what becomes of the guest's own automatic updates, unless it was told.
func TestEnrolAsks(t *testing.T) {
	s := newSite(t, lab.Config{}, all())
	for _, c := range []struct{ types, shows string }{{"off", `"automatic":"off"`}, {"", `"automatic":"keep"`}, {"maybe", "[keep]: "}} {
		r := onTerminal(t, s.env(), "enrol", "101", "--from", "192.0.2.10")
		r.shows("[keep]: ")
		r.types(c.types)
		r.shows(c.shows)
	}
	r := onTerminal(t, s.env(), "enrol", "101", "--from", "192.0.2.10")
	r.shows("[keep]: ")
	if _, err := r.file.Write([]byte{4}); err != nil { // end of input
		t.Fatal(err)
	}
	r.shows("nothing was changed")
	if code := r.ends(); code == 0 {
		t.Error("no answer was taken for one")
	}
	r = onTerminal(t, s.env(), "enrol", "101", "--from", "192.0.2.10", "--automatic", "on")
	r.shows(`"automatic":"on"`)
}
