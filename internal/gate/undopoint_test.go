package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestSnapshotThatIsTakenAway: a snapshot that a plan takes stands for the undo point, unless the plan deletes it again.
func TestSnapshotThatIsTakenAway(t *testing.T) {
	r := newRig(t, newMemory(), newSite())
	step := func(operation string, params map[string]any) Step {
		req, err := NewRequest("pve", operation, params)
		if err != nil {
			t.Fatal(err)
		}
		return Step{API: &req}
	}
	take := step("POST /nodes/{node}/qemu/{vmid}/snapshot", map[string]any{"node": "pve1", "vmid": "101", "snapname": "aa"})
	drop := step("DELETE /nodes/{node}/qemu/{vmid}/snapshot/{snapname}", map[string]any{"node": "pve1", "vmid": "101", "snapname": "aa"})
	other := step("DELETE /nodes/{node}/qemu/{vmid}/snapshot/{snapname}", map[string]any{"node": "pve1", "vmid": "101", "snapname": "bb"})
	set := step("PUT /nodes/{node}/qemu/{vmid}/config", map[string]any{"node": "pve1", "vmid": "101", "memory": "1024"})
	late := take
	late.When = When{StepFailed: 1}
	for _, c := range []struct {
		steps []Step
		has   bool
	}{{[]Step{take, set}, true}, {[]Step{late, set}, false}, {[]Step{take, other, set}, true}, {[]Step{take, drop, set}, false}, {[]Step{take, set, drop}, false}, {[]Step{set}, false}} {
		wanted, had := map[[2]string]string{}, map[[2]string]string{}
		r.g.pointsOf(&Draft{Target: "lab", Steps: c.steps}, "", []Kind{KindConfig}, wanted, had)
		if has := len(had) > 0; has != c.has {
			t.Errorf("%d steps: a snapshot is left %v, want %v", len(c.steps), has, c.has)
		}
	}
}

type patchIn struct {
	Guests   []string `json:"guests"`
	Protect  string   `json:"protect,omitempty"`
	Backup   string   `json:"backup,omitempty"` // "before", "after", "when": only in a case, "part" or "gone"
	Word     string   `json:"word,omitempty"`
	Parallel int      `json:"parallel,omitempty"`
}

// patching plans upgrades, and the snapshots that the gate asks for.
func patching(fault *string) []*Operation {
	request := func(operation string, args map[string]any) *Request {
		r, err := NewRequest("pve", operation, args)
		if err != nil {
			panic(err)
		}
		return &r
	}
	return []*Operation{
		Change(Declaration{Name: "patch", Summary: "patch", Effect: EffectChange}, func(_ context.Context, _ View, in patchIn) (*Draft, error) {
			d := &Draft{Parallel: in.Parallel}
			for _, g := range in.Guests {
				args := map[string]any{"vmid": g}
				if in.Protect != "" {
					args["protect"] = in.Protect
				}
				up := Step{API: request("RUN /guest/{vmid}/"+orText(in.Word, "upgrade"), args), Undo: Undo{None: "a test"}}
				backup := Step{API: request("POST /nodes/{node}/vzdump", map[string]any{"node": "n1", "vmid": g, "remove": false, "prune-backups": "keep-all=1"}), Undo: Undo{None: "a test"}}
				back := Step{API: request("PUT /guest/{vmid}", map[string]any{"vmid": g}), Undo: Undo{None: "a test"}, When: When{StepFailed: 1}}
				c := &Draft{Steps: []Step{up, back}}
				switch in.Backup {
				case "before":
					back.When.StepFailed = 2
					c.Steps = []Step{backup, up, back}
				case "after":
					c.Steps = []Step{up, backup}
				case "part":
					backup.API = request("POST /nodes/{node}/vzdump", map[string]any{"node": "n1", "vmid": g, "exclude-path": "/*"})
					c.Steps = []Step{backup, up}
				case "gone":
					c.Steps = []Step{backup, {API: request("DELETE /nodes/{node}/storage/{storage}/content/{volume}", map[string]any{"node": "n1", "storage": "nas", "volume": "nas:backup/x"}), Undo: Undo{None: "a test"}}, up}
				case "when":
					backup.When.StepFailed = 1
					c.Steps = []Step{{API: request("PUT /guest/{vmid}", map[string]any{"vmid": g}), Undo: Undo{None: "a test"}}, backup, up}
				}
				d.Children = append(d.Children, c)
			}
			if in.Parallel == 0 && len(d.Children) == 1 {
				return d.Children[0], nil
			}
			return d, nil
		}),
		Change(Declaration{Name: UndoPoint, Summary: "undo point", Effect: EffectChange}, func(_ context.Context, _ View, in struct {
			Guest    string `json:"guest"`
			Rollback string `json:"rollback,omitempty"`
			Target   string `json:"target,omitempty"`
		}) (*Draft, error) {
			if *fault != "" {
				return nil, Fail(ErrInvalid, "", "%s", *fault)
			}
			return &Draft{Steps: []Step{{API: request("POST /guest/{vmid}/snapshot", map[string]any{"vmid": in.Guest, "snapname": UndoPointPrefix + "x" + in.Guest}), Undo: Undo{None: "a test"}}}}, nil
		}),
	}
}

// TestSnapshotBeforePackages: what installs packages gets a snapshot before it, whatever policy says, unless a backup comes
// before it or it says that it has none; and a backup that does not surely come before it is none.
func TestSnapshotBeforePackages(t *testing.T) {
	fault := ""
	r := newRigWith(t, newMemory(), newSite(), func(c *Config) {
		c.Operations, c.Runner, c.Lanes = append(c.Operations, patching(&fault)...), newHands(), &doors{}
	})
	for name, c := range map[string]struct {
		args, steps, refused string
		fault                string
	}{
		"nothing is said":       {args: `{"guests":["101"]}`, steps: "snapshot 101, upgrade 101, config 101 if 2"},
		"a snapshot":            {args: `{"guests":["101"],"protect":"snapshot"}`, steps: "snapshot 101, upgrade 101, config 101 if 2"},
		"repair":                {args: `{"guests":["101"],"word":"repair"}`, steps: "snapshot 101, repair 101, config 101 if 2"},
		"none":                  {args: `{"guests":["101"],"protect":"none"}`, steps: "upgrade 101, config 101 if 1"},
		"a look":                {args: `{"guests":["101"],"word":"updates"}`, steps: "updates 101, config 101 if 1"},
		"a backup":              {args: `{"guests":["101"],"protect":"backup","backup":"before"}`, steps: "vzdump 101, upgrade 101, config 101 if 2"},
		"no backup":             {args: `{"guests":["101"],"protect":"backup"}`, refused: "nothing before it makes one"},
		"a backup after it":     {args: `{"guests":["101"],"protect":"backup","backup":"after"}`, refused: "nothing before it makes one"},
		"a backup only if":      {args: `{"guests":["101"],"protect":"backup","backup":"when"}`, refused: "nothing before it makes one"},
		"a backup of a part":    {args: `{"guests":["101"],"protect":"backup","backup":"part"}`, refused: "nothing before it makes one"},
		"a backup that goes":    {args: `{"guests":["101"],"protect":"backup","backup":"gone"}`, refused: "nothing before it makes one"},
		"no snapshot can be":    {args: `{"guests":["101"]}`, fault: "no storage of it can", refused: "no storage of it can"},
		"several guests":        {args: `{"guests":["102","101"]}`, steps: "snapshot 101, snapshot 102, upgrade 102, config 102 if 3, upgrade 101, config 101 if 5"},
		"side by side":          {args: `{"guests":["102","101"],"parallel":2}`, steps: "snapshot 102 in 1, upgrade 102 in 1, config 102 if 2 in 1, snapshot 101 in 2, upgrade 101 in 2, config 101 if 5 in 2"},
		"side by side, backups": {args: `{"guests":["102","101"],"parallel":2,"protect":"backup","backup":"before"}`, steps: "vzdump 102 in 1, upgrade 102 in 1, config 102 if 2 in 1, vzdump 101 in 2, upgrade 101 in 2, config 101 if 5 in 2"},
	} {
		fault = c.fault
		out, err := r.g.Do(context.Background(), Call{Operation: "patch", Args: json.RawMessage(c.args), Principal: agent, PlanOnly: true}, nil)
		if c.refused != "" {
			if err == nil || !strings.Contains(AsError(err).Message, c.refused) {
				t.Errorf("%s: %+v %v, want it refused: %s", name, out, err, c.refused)
			}
			continue
		}
		if err != nil || out.Plan == nil {
			t.Errorf("%s: %+v %v", name, out, err)
			continue
		}
		_, record, err := r.g.Show(context.Background(), agent, out.Plan.ID)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range record.Plan.Steps {
			word := s.API.Operation[strings.LastIndex(s.API.Operation, "/")+1:]
			if word == "{vmid}" {
				word = "config"
			}
			text := word + " " + s.API.Text("vmid")
			if s.When.StepFailed > 0 {
				text += fmt.Sprintf(" if %d", s.When.StepFailed)
			}
			if record.Plan.Course != nil {
				text += fmt.Sprintf(" in %d", s.Part)
			}
			got = append(got, text)
		}
		if text := strings.Join(got, ", "); text != c.steps {
			t.Errorf("%s:\n%s\nwant\n%s", name, text, c.steps)
		}
	}
}

// TestManySnapshots: so many guests are snapshotted in one plan, and in one whose parts run side by side more.
func TestManySnapshots(t *testing.T) {
	fault := ""
	r := newRigWith(t, newMemory(), newSite(), func(c *Config) {
		c.Operations, c.Runner, c.Lanes = append(c.Operations, patching(&fault)...), newHands(), &doors{}
	})
	for _, c := range []struct {
		guests, parallel int
		taken            bool
	}{{maxUndoPoints, 0, true}, {maxUndoPoints + 1, 0, false}, {maxUndoPoints + 1, 5, true}, {maxCourseUndoPoints, 5, true}, {maxCourseUndoPoints + 1, 5, false}} {
		in := patchIn{Parallel: c.parallel}
		for i := range c.guests {
			in.Guests = append(in.Guests, fmt.Sprint(200+i))
		}
		b, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		out, err := r.g.Do(context.Background(), Call{Operation: "patch", Args: b, Principal: agent, PlanOnly: true}, nil)
		if (err == nil) != c.taken {
			t.Errorf("%d guests, %d at once: %+v %v", c.guests, c.parallel, out, err)
		}
	}
}
