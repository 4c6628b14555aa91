package estate

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func TestSettings(t *testing.T) {
	v := newLab(t, "small")
	s := survey(t, New(), v, time.Minute)
	var guests []*Guest
	for i := range s.Inventory().Guests {
		guests = append(guests, &s.Inventory().Guests[i])
	}
	gone := *guests[0]
	gone.ID = "98765"
	guests = append(guests, &gone)
	again := survey(t, New(), v, time.Minute)
	for i, got := range s.Settings(guests) {
		want, ok := again.Config(*guests[i])
		if ok != (got.Config != nil) || ok == (guests[i] == &gone) || !cmp.Equal(got.Config, want) {
			t.Fatalf("guest %s: %v, one by one %v, %v", guests[i].ID, got.Config, want, ok)
		}
		for key, value := range want {
			if plain := (Settings{Config: want}); !got.Mention(value) || !got.Mention("no such text", value) || !plain.Mention(value) {
				t.Errorf("%s of guest %s is not found", key, guests[i].ID)
			}
		}
		if got.Mention("no such text") || got.Mention() {
			t.Errorf("a text that guest %s has not is found", guests[i].ID)
		}
	}
}

func TestJoin(t *testing.T) {
	for _, c := range []Config{{}, {"a": ""}, {"": "b"}, {"scsi0": "fast:vm-1-disk-0", "name": "ü", "empty": "", "net0": "virtio=x"}} {
		before := maps.Clone(c)
		got, _ := c.join()
		if !cmp.Equal(got, before) {
			t.Errorf("%v became %v", before, got)
		}
	}
	got, text := Config{"a": "one", "b": "two"}.join()
	if (Settings{got, text}).Mention("oneb", "onetwo", "twoa", "a", "b", "\x00", "a\x01") {
		t.Error("a text over the bounds of a value is found")
	}
}

// Where something stands is found whatever a value holds, what parts the settings in memory among it.
func TestNaming(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("ab:,\x00\x01")), 0, 6, -1)
		c := Config(rapid.MapOfN(text, text, 0, 6).Draw(t, "settings"))
		texts := rapid.SliceOfN(text, 0, 3).Draw(t, "texts")
		want := map[string]string{}
		for k, v := range c {
			if slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(v, s) }) {
				want[k] = v
			}
		}
		joined, all := c.join()
		found := map[string]string{}
		for k, v := range (Settings{joined, all}).Naming(texts...) {
			if _, twice := found[k]; twice {
				t.Fatalf("%q is found twice", k)
			}
			found[k] = v
		}
		if !cmp.Equal(found, want) || !cmp.Equal(joined, c, cmpopts.EquateEmpty()) {
			t.Fatalf("%q in %q: %q", texts, c, found)
		}
	})
}
