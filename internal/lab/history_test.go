package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"testing"
	"time"

	"castellan/internal/catalog/facts"
)

func (h *historyRig) points(path, frame string) []map[string]float64 {
	h.t.Helper()
	var out struct{ Data []map[string]float64 }
	h.get(path+"/rrddata?cf=AVERAGE&timeframe="+frame, &out)
	return out.Data
}

type historyRig struct {
	t *testing.T
	l *Lab
}

func (h *historyRig) get(path string, to any) {
	h.t.Helper()
	status, reason, body := h.l.Do(h.t.Context(), "GET", "/api2/json"+path, http.Header{"Authorization": {h.l.Tokens()["admin"]}}, nil)
	if status != 200 {
		h.t.Fatalf("%s: %d %s", path, status, reason)
	}
	if err := json.Unmarshal(body, to); err != nil {
		h.t.Fatalf("%s: %v", path, err)
	}
}

func mean(points []map[string]float64, key string) float64 {
	sum, n := 0.0, 0
	for _, p := range points {
		if v, ok := p[key]; ok {
			sum, n = sum+v, n+1
		}
	}
	if n == 0 {
		return math.NaN()
	}
	return sum / float64(n)
}

// TestHistories: every node, guest and storage has a history of every length with the figures of its version, and the
// same one each time.
func TestHistories(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC)
	for version, pressure := range map[string]bool{"9": true, "8": false} {
		l, err := New(Config{Version: version, Facts: facts.Open(), Clock: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		h := &historyRig{t, l}
		for path, keys := range map[string][]string{"/nodes/pve1": {"cpu", "iowait", "loadavg", "memused", "memtotal", "rootused"}, "/nodes/pve1/qemu/101": {"cpu", "mem", "maxmem", "diskwrite", "netin"},
			"/nodes/pve1/lxc/201": {"cpu", "mem", "disk", "maxdisk"}, "/nodes/pve1/storage/nas": {"used", "total"}} {
			for _, frame := range []string{"hour", "day", "week"} {
				points := h.points(path, frame)
				want := map[string]int{"hour": 59, "day": map[bool]int{true: 1439, false: 69}[pressure], "week": map[bool]int{true: 335, false: 69}[pressure]}[frame]
				if len(points) != want {
					t.Errorf("%s %s %s: %d points, want %d", version, path, frame, len(points), want)
				}
				for _, k := range keys {
					if m := mean(points, k); math.IsNaN(m) {
						t.Errorf("%s %s %s: no %s", version, path, frame, k)
					}
				}
				_, has := points[len(points)-1]["pressureiosome"]
				if want := pressure && !slices.Contains(keys, "total"); has != want {
					t.Errorf("%s %s %s: pressure %v", version, path, frame, has)
				}
				if again := h.points(path, frame); fmt.Sprint(again) != fmt.Sprint(points) {
					t.Errorf("%s %s %s: differs from itself", version, path, frame)
				}
			}
		}
		stopped := h.points("/nodes/pve1/qemu/103", "hour")
		if _, ran := stopped[0]["cpu"]; ran || stopped[0]["maxmem"] == 0 {
			t.Errorf("%s: a stopped guest: %v", version, stopped[0])
		}
		var st struct{ Data map[string]any }
		h.get("/nodes/pve1/qemu/101/status/current", &st)
		if _, has := st.Data["pressureiosome"]; has != pressure {
			t.Errorf("%s: pressure now: %v", version, has)
		}
	}
}

// TestIllnesses: an illness shows in the state of now, in the listing and in the history from its beginning on.
func TestIllnesses(t *testing.T) {
	l, err := New(Config{Facts: facts.Open(), Ill: []Illness{{202, "memory"}, {101, "disk"}, {201, "full"}, {204, "cpu"}}})
	if err != nil {
		t.Fatal(err)
	}
	h := &historyRig{t, l}
	for _, c := range []struct {
		path, key string
		from      float64
	}{{"/nodes/pve1/lxc/202", "pressurememorysome", 20}, {"/nodes/pve1/qemu/101", "pressureiosome", 40}, {"/nodes/pve3/lxc/204", "pressurecpusome", 40}, {"/nodes/pve3/lxc/204", "cpu", 0.95}} {
		if got := mean(h.points(c.path, "hour"), c.key); got < c.from {
			t.Errorf("%s %s: %v in the last hour", c.path, c.key, got)
		}
		if day := h.points(c.path, "day"); day[0][c.key] > c.from/4 {
			t.Errorf("%s %s: %v a day ago", c.path, c.key, day[0][c.key])
		}
	}
	var now struct{ Data map[string]any }
	h.get("/nodes/pve1/lxc/202/status/current", &now)
	if swap, _ := now.Data["swap"].(float64); swap < 100<<20 {
		t.Errorf("swap: %v", now.Data)
	}
	var all struct{ Data []map[string]any }
	h.get("/cluster/resources?type=vm", &all)
	for _, g := range all.Data {
		if disk, _ := g["disk"].(float64); g["vmid"] == 201.0 && disk < 3<<30 {
			t.Errorf("root disk: %v", g)
		}
	}
	if err := l.SetIll(Illness{202, ""}); err != nil {
		t.Fatal(err)
	}
	if got := mean(h.points("/nodes/pve1/lxc/202", "hour"), "pressurememorysome"); got > 1 {
		t.Errorf("healed: %v", got)
	}
	for _, bad := range []Illness{{999, "cpu"}, {103, "cpu"}, {101, "full"}, {101, "cough"}} {
		if err := l.SetIll(bad); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
	if _, err := ParseIllness("cpu"); !errors.Is(err, ErrIllness) {
		t.Error(err)
	}
}
