package lab

import (
	"fmt"
	"sort"
	"strings"
	"time"

	"castellan/internal/regex"
)

func parseKeep(text string) map[string]string {
	m := map[string]string{}
	for _, p := range strings.Split(text, ",") {
		if k, v, ok := strings.Cut(p, "="); ok {
			m[strings.TrimSpace(k)] = v
		}
	}
	return m
}

func keepText(keep map[string]string) string {
	var out []string
	for _, k := range sortedKeys(keep) {
		out = append(out, k+"="+keep[k])
	}
	return strings.Join(out, ", ")
}

type marked struct {
	v    *volume
	mark string
}

// pruneMarks says what retention does with each backup; protected ones do not count.
func (s *state) pruneMarks(list []*volume, keep map[string]string) []marked {
	out := make([]marked, len(list))
	byGuest := map[string][]int{}
	for i, v := range list {
		out[i] = marked{v, ""}
		switch {
		case v.protected:
			out[i].mark = "protected"
		case !archiveName.MatchString(v.id) && v.verified == "":
			out[i].mark = "renamed"
		default:
			k := fmt.Sprintf("%s/%d", v.subtype, v.vmid)
			byGuest[k] = append(byGuest[k], i)
		}
	}
	forms := []struct{ key, form string }{{"keep-hourly", "2006-01-02 15"}, {"keep-daily", "2006-01-02"}, {"keep-weekly", "week"}, {"keep-monthly", "2006-01"}, {"keep-yearly", "2006"}}
	for _, idx := range byGuest {
		if keep["keep-all"] == "1" || len(keep) == 0 {
			for _, i := range idx {
				out[i].mark = "keep"
			}
			continue
		}
		last := atoi(keep["keep-last"])
		for n, i := range idx {
			if n < last {
				out[i].mark = "keep"
			}
		}
		for _, f := range forms {
			left := atoi(keep[f.key])
			name := func(v *volume) string {
				if f.form == "week" {
					y, w := v.ctime.UTC().ISOWeek()
					return fmt.Sprintf("%d/%d", y, w)
				}
				return v.ctime.UTC().Format(f.form)
			}
			seen := map[string]bool{}
			for _, i := range idx {
				if out[i].mark == "keep" {
					seen[name(list[i])] = true
				}
			}
			for _, i := range idx {
				if left == 0 {
					break
				}
				if n := name(list[i]); out[i].mark == "" && !seen[n] {
					seen[n] = true
					out[i].mark = "keep"
					left--
				}
			}
		}
		for _, i := range idx {
			if out[i].mark == "" {
				out[i].mark = "remove"
			}
		}
	}
	return out
}

var archiveName = &regex.Lazy{Expr: `backup/vzdump-(lxc|qemu)-\d+-\d{4}_\d\d_\d\d-\d\d_\d\d_\d\d\.`}

func (c *call) pruneList() ([]marked, error) {
	st, err := c.storageParam()
	if err != nil {
		return nil, err
	}
	text := c.str("prune-backups")
	if text == "" {
		text = st.text("prune-backups")
	}
	if text == "" {
		return nil, die("no prune-backups options configured for storage '%s'", st.id)
	}
	var list []*volume
	for _, v := range c.s.backupsOf(c.node.name, st.id, c.num("vmid")) {
		if t := c.str("type"); t == "" || t == v.subtype {
			list = append(list, v)
		}
	}
	return c.s.pruneMarks(list, parseKeep(text)), nil
}

func pruneDryRun(c *call) (any, error) {
	list, err := c.pruneList()
	if err != nil {
		return nil, err
	}
	out := []M{}
	for _, x := range list {
		out = append(out, M{"volid": x.v.id, "ctime": x.v.ctime.Unix(), "mark": x.mark, "type": x.v.subtype, "vmid": x.v.vmid})
	}
	sort.SliceStable(out, func(i, j int) bool { return fmt.Sprint(out[i]["ctime"]) < fmt.Sprint(out[j]["ctime"]) })
	return out, nil
}

func pruneNow(c *call) (any, error) {
	st, err := c.storageParam()
	if err != nil {
		return nil, err
	}
	if !c.can("/storage/"+st.id, "Datastore.Allocate") {
		if err := c.need("/storage/"+st.id, "Datastore.AllocateSpace"); err != nil {
			return nil, err
		}
		if err := c.need(fmt.Sprintf("/vms/%d", c.num("vmid")), "VM.Backup"); err != nil {
			return nil, err
		}
	}
	if _, err := c.pruneList(); err != nil {
		return nil, err
	}
	id := st.id
	if c.has("vmid") {
		id = fmt.Sprintf("%s@%s", c.str("vmid"), st.id)
	}
	return c.quick("prunebackups", id, 300*time.Millisecond, func(t *task) error {
		list, err := c.pruneList()
		if err != nil {
			return err
		}
		for _, x := range list {
			if x.mark == "remove" {
				t.say("removing backup '%s'", x.v.id)
				c.s.dropVol(x.v)
			}
		}
		return nil
	}), nil
}
