package pve

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/regex"
)

var growth = &regex.Lazy{Expr: `^\+([1-9][0-9]{0,9})([KMGT])$`}

// growths takes the disks that are only to grow ("+10G") out of the settings, and refuses sizes that the server
// would take for something else.
func (g *guest) growths(set map[string]string) (grow map[string]string, err error) {
	grow = map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(set)) {
		b, disk := diskKey(k)
		if !disk || b == "unused" {
			continue
		}
		value, old := set[k], g.config[k]
		switch {
		case growth.MatchString(value):
			if old == "" {
				return nil, gate.Fail(gate.ErrInvalid, "Give STORAGE:SIZE for a new disk, such as local-lvm:32.", "%s has no %s that could grow", g.Title(), k)
			}
			grow[k] = value
			delete(set, k)
		case diskSize.MatchString(value):
			return nil, gate.Fail(gate.ErrInvalid, "To grow a disk give what is added, as +10G; for a new one give STORAGE:SIZE, such as local-lvm:32.", "%s=%s is a bare size", k, clip(value, 40))
		case old != "" && properties(k, value)["size"] != "" && properties(k, value)["size"] != properties(k, old)["size"] &&
			properties(k, value)[nameless[b]] == properties(k, old)[nameless[b]]:
			return nil, gate.Fail(gate.ErrInvalid, "Give what is added, as +10G.", "%s: the size in the settings only tells the size, it does not change it", k)
		default:
			if set[k], err = newDisk(k, value); err != nil {
				return nil, err
			}
		}
	}
	return grow, nil
}

// growSteps drafts one step a disk.
func (g *guest) growSteps(ctx context.Context, grow map[string]string, d *gate.Draft) error {
	for _, k := range slices.Sorted(maps.Keys(grow)) {
		old := g.config[k]
		step, err := g.step(ctx, "PUT", "/resize", map[string]any{"disk": k, "size": grow[k]})
		if err != nil {
			return err
		}
		step.Wait = gate.Wait{Kind: gate.WaitTask, Limit: time.Hour}
		fresh := g.fresh("/config", nil)
		size, known := gate.PropertyValue(old, "size")
		if known {
			step.Require = append(step.Require, gate.Condition{Name: k + " has size " + size, Read: fresh, Pointer: "/" + k, Key: "size", Rule: gate.RuleEquals, Value: text(size)})
		}
		verify := gate.Condition{Name: k + " is larger than " + size, Read: fresh, Pointer: "/" + k, Key: "size", Rule: gate.RuleDiffers, Value: text(size)}
		after, sum := grown(size, grow[k])
		if sum {
			verify.Name, verify.Rule, verify.Value = k+" has size "+after, gate.RuleEquals, text(after)
		}
		step.Verify = []gate.Condition{verify}
		step.Undo.None = "a disk cannot be made smaller again"
		diff := gate.Difference{Object: "guest/" + g.ID, Key: k, Old: clip(old, 400), New: grow[k]}
		if g.Kind == estate.VM {
			diff.Note = "grows; the file system inside is not grown by this"
		}
		d.Diff = append(d.Diff, diff)
		d.Steps = append(d.Steps, step)
	}
	return nil
}

// grown adds sizes of one unit; what needs conversion is left to the server.
func grown(size, plus string) (string, bool) {
	m := growth.FindStringSubmatch(plus)
	if m == nil || len(size) < 2 || size[len(size)-1:] != m[2] {
		return "", false
	}
	have, err := strconv.Atoi(size[:len(size)-1])
	more, err2 := strconv.Atoi(m[1])
	if err != nil || err2 != nil {
		return "", false
	}
	return fmt.Sprintf("%d%s", have+more, m[2]), true
}
