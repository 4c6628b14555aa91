package reach

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/ops/opstest"
)

// lateLook is a view for which nothing counts that was read before a time, as just before a step.
type lateLook struct {
	*opstest.View
	since time.Time
}

func (l lateLook) Since() time.Time { return l.since }

// SawFreeText lets what holds text of outsiders be kept.
func (l lateLook) SawFreeText() {}

// onBase is the site of the walks' cases, and a walker on it.
func onBase(t *testing.T) (*opstest.View, *Walker) {
	t.Helper()
	base, err := os.ReadFile("testdata/base.site")
	if err != nil {
		t.Fatal(err)
	}
	v, err := opstest.New(string(base))
	if err != nil {
		t.Fatal(err)
	}
	k, err := New(Config{Estate: estate.New(), Catalog: v.Catalog})
	if err != nil {
		t.Fatal(err)
	}
	return v, k
}

// TestASecondStartReadsNobodyElse: who else has a disk is asked with every start; what is kept of the others is enough for a
// while, also just before a step, but not when something was done with one of them.
func TestASecondStartReadsNobodyElse(t *testing.T) {
	v, k := onBase(t)
	r := requestOf(t, "POST /nodes/{node}/qemu/{vmid}/status/start\nnode=pve1\nvmid=103")
	steps := []gate.Step{{Number: 1, Target: "lab", API: r, Judgement: judge(t, v.Catalog, r)}}
	start := v.Clock
	walk := func(after time.Duration, fresh bool, site string) (others []string, out gate.Reach) {
		t.Helper()
		if err := v.Add(site); err != nil {
			t.Fatal(err)
		}
		v.Clock = start.Add(after)
		l := lateLook{View: v}
		if fresh {
			l.since = v.Clock
		}
		before := len(v.Asked())
		out = k.Walk(t.Context(), l, gate.WalkQuestion{Steps: steps, Fresh: fresh})
		for _, read := range v.Asked()[before:] {
			if id, ok := strings.CutPrefix(read, "GET /nodes/"); ok && strings.Contains(read, "/config") && !strings.Contains(read, "/103/") {
				others = append(others, strings.Split(id, "/")[2])
			}
		}
		slices.Sort(others)
		return others, out
	}
	everybody := []string{"101", "102", "110", "120", "200", "201", "900"}
	for _, c := range []struct {
		name  string
		after time.Duration
		fresh bool
		site  string
		want  []string
	}{
		{"the first", 0, false, `GET /cluster/tasks [{"upid":"UPID:pve2:0","node":"pve2","type":"qmstart","id":"102","starttime":1772300000,"endtime":1772300001,"status":"OK"}]`, everybody},
		{"its step", time.Second, true, "", nil},
		{"within the age", 4 * time.Minute, false, "", nil},
		{"another step", 4*time.Minute + time.Second, true, "", nil},
		{"after a task on one of them", 4*time.Minute + 30*time.Second, true,
			`GET /cluster/tasks [{"upid":"UPID:pve2:0","node":"pve2","type":"qmstart","id":"102","starttime":1772300000,"endtime":1772300001,"status":"OK"},{"upid":"UPID:pve2:1","node":"pve2","type":"qmconfig","id":"102","starttime":1772366650,"endtime":1772366651,"status":"OK"}]`, []string{"102"}},
		{"too long after", 7 * time.Minute, true, "", []string{"101", "110", "120", "200", "201", "900"}},
	} {
		got, out := walk(c.after, c.fresh, c.site)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s reads the settings of %v, want %v", c.name, got, c.want)
		}
		if len(out.Hits) > 0 || len(out.Unread) > 0 {
			t.Errorf("%s hits %v, has not read %v", c.name, out.Hits, out.Unread)
		}
	}
	_, out := walk(7*time.Minute+20*time.Second, true, `GET /cluster/tasks [{"upid":"UPID:pve2:2","node":"pve2","type":"qmconfig","id":"102","starttime":1772366800,"endtime":1772366801,"status":"OK"},{"upid":"UPID:pve2:1","node":"pve2","type":"qmconfig","id":"102","starttime":1772366650,"endtime":1772366651,"status":"OK"}]
GET /nodes/pve2/qemu/102/config {"name":"db","scsi7":"nas:103/vm-103-disk-0.qcow2"}`)
	if len(out.Hits) != 1 || out.Hits[0].Object.ID != "102" {
		t.Errorf("a disk that was attached by a task a moment ago: %v", out.Hits)
	}
}

// TestANodesOwnStorage: of a storage that each node has for itself nobody on another node is asked.
func TestANodesOwnStorage(t *testing.T) {
	v, k := onBase(t)
	r := requestOf(t, "POST /nodes/{node}/qemu/{vmid}/snapshot/{snapname}/rollback\nnode=pve1\nvmid=101\nsnapname=before")
	k.Walk(t.Context(), v, gate.WalkQuestion{Steps: []gate.Step{{Number: 1, Target: "lab", API: r, Judgement: judge(t, v.Catalog, r)}}})
	for _, read := range v.Asked() {
		if strings.Contains(read, "/nodes/pve2/") {
			t.Errorf("%s is asked", read)
		}
	}
}

// TestARestoreOverAnotherDisk: a guest that has got another disk meanwhile loses more than was approved.
func TestARestoreOverAnotherDisk(t *testing.T) {
	matter := func(settings string) string {
		base, err := os.ReadFile("testdata/base.site")
		if err != nil {
			t.Fatal(err)
		}
		c := &walkCase{t: t, site: string(base) + "\nGET /nodes/pve1/qemu/103/config " + settings}
		c.steps = []*gate.Request{requestOf(t, "POST /nodes/{node}/qemu\nnode=pve1\nvmid=103\nforce=1\narchive=nas:backup/vzdump-qemu-103-2026_01_27-01_00_00.vma.zst")}
		got, _ := c.walk("")
		for _, h := range got.Hits {
			if h.Class == ClassLosesData && h.Object.ID == "103" && !h.Unknown {
				return h.Matter
			}
		}
		t.Fatalf("no disk is lost: %+v", got.Hits)
		return ""
	}
	planned := matter(`{"name":"old","scsi0":"nas:103/vm-103-disk-0.qcow2,size=16G"}`)
	if planned == "" || matter(`{"name":"old","scsi0":"nas:103/vm-103-disk-0.qcow2,size=16G","scsi1":"nas:103/vm-103-disk-5.qcow2"}`) == planned {
		t.Error("another disk goes unseen")
	}
	if matter(`{"name":"older","scsi0":"nas:103/vm-103-disk-0.qcow2,size=20G"}`) != planned {
		t.Error("one that has grown stops it")
	}
}
