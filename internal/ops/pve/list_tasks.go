package pve

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/ops/table"
)

type listTasksIn struct {
	Node   string `json:"node,omitempty"`
	Guest  string `json:"guest,omitempty"`
	Type   string `json:"type,omitempty" jsonschema:"e.g. vzdump"`
	Errors bool   `json:"errors,omitempty" jsonschema:"failed only"`
	Since  string `json:"since,omitempty" jsonschema:"24h, 7d or RFC 3339"`
	Limit  int    `json:"limit,omitempty" jsonschema:"default 20"`
	Cursor string `json:"cursor,omitempty"`
	Target string `json:"target,omitempty"`
}

type listTasksOut struct {
	Tasks []map[string]any `json:"tasks"` // newest first
	table.Count
	Window     string   `json:"window"` // what was looked at: absence from a window proves nothing
	Incomplete []string `json:"incomplete,omitempty"`
}

var taskColumns = table.Columns{All: []string{"upid", "type", "id", "node", "user", "started", "took", "state", "exit"}}

func listTasks() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "list_tasks", Summary: "Recent tasks, newest first. Read; then task_status", Product: "pve", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "jobs running failed errors history what happened backups log activity", Toolset: "standard",
	}, runListTasks)
}

const (
	tasksShown  = 20
	tasksMost   = 500
	tasksWindow = 500
)

func runListTasks(ctx context.Context, v gate.View, in listTasksIn) (listTasksOut, error) {
	if in.Limit < 0 || in.Limit > tasksMost {
		return listTasksOut{}, gate.Fail(gate.ErrInvalid, "Give 1 to 500, or nothing for 20.", "limit %d is out of range", in.Limit)
	}
	since, err := parseSince(in.Since, v.Now())
	if err != nil {
		return listTasksOut{}, err
	}
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return listTasksOut{}, err
	}
	out := listTasksOut{}
	node, vmid := in.Node, ""
	if in.Guest != "" {
		g, err := s.inv.Guest(ctx, v, in.Guest)
		switch {
		case err == nil:
			vmid = g.ID
			if node == "" {
				node = g.Node
				out.Incomplete = append(out.Incomplete, "tasks of "+g.Title()+" on nodes where it was before are not in this list; name the node for those")
			}
		case estate.Gone(err) && strings.Trim(in.Guest, "0123456789") == "" && node != "":
			vmid = in.Guest // tasks outlive their guest
		default:
			return listTasksOut{}, err
		}
	}
	var rows []taskRow
	if node != "" {
		n, err := s.inv.Node(node)
		if err != nil {
			return listTasksOut{}, err
		}
		if n.Status != "online" {
			return listTasksOut{}, gate.Fail(gate.ErrUnavailable, "Ask without node for the tasks of the others.", "node %s is %s: its tasks cannot be read", n.Name, n.Status)
		}
		params := map[string]string{"node": node, "limit": fmt.Sprint(tasksWindow), "source": "all"}
		if vmid != "" {
			params["vmid"] = vmid
		}
		if in.Errors {
			params["errors"] = "1"
		}
		if in.Type != "" {
			params["typefilter"] = in.Type
		}
		if !since.IsZero() {
			params["since"] = fmt.Sprint(since.Unix())
		}
		if _, err := s.read(ctx, &rows, "GET /nodes/{node}/tasks", params); err != nil {
			return listTasksOut{}, fmt.Errorf("list the tasks of node %s: %w", node, err)
		}
		out.Window = fmt.Sprintf("the newest %d matching tasks of node %s", tasksWindow, node)
		if len(rows) < tasksWindow {
			out.Window = fmt.Sprintf("all matching tasks that node %s still keeps and castellan may see", node)
		}
	} else {
		a, err := s.read(ctx, &rows, "GET /cluster/tasks", nil)
		if err != nil {
			return listTasksOut{}, fmt.Errorf("list the tasks of the site: %w", err)
		}
		out.Window = "the site's short list of recent tasks; name a node for a longer one"
		out.Incomplete = append(out.Incomplete, a.Missing...)
		for _, n := range s.inv.Nodes {
			if n.Status != "online" {
				out.Incomplete = append(out.Incomplete, "node "+n.Name+" is "+n.Status+": its tasks are missing")
			}
		}
	}
	matched := slices.DeleteFunc(dedupe(rows), func(r taskRow) bool {
		return vmid != "" && string(r.ID) != vmid || in.Errors && r.state() != "failed" && r.state() != "unknown" || in.Type != "" && string(r.Type) != in.Type ||
			!since.IsZero() && int64(r.Start) < since.Unix()
	})
	slices.SortStableFunc(matched, func(a, b taskRow) int {
		if a.Start != b.Start {
			return int(b.Start - a.Start)
		}
		return strings.Compare(string(b.UPID), string(a.UPID))
	})
	limit := in.Limit
	if limit == 0 {
		limit = tasksShown
	}
	out.Tasks, out.Count, err = table.Cut(table.Ask{Limit: limit, Cursor: in.Cursor}, taskColumns, matched, func(r taskRow) string { return string(r.UPID) }, rowOf)
	return out, err
}

func rowOf(r taskRow) map[string]any {
	row := map[string]any{"upid": string(r.UPID), "type": string(r.Type), "id": string(r.ID), "node": string(r.Node), "user": r.who(), "started": stamp(int64(r.Start)), "state": r.state()}
	if r.ended() {
		row["took"] = span(int64(r.End - r.Start))
		if exit := string(r.Status); exit != "OK" {
			row["exit"] = clip(exit, 200)
		}
	}
	return row
}

// dedupe drops tasks that stand among the running and the ended ones at once; the ended entry knows more.
func dedupe(rows []taskRow) []taskRow {
	at, out := map[string]int{}, []taskRow{}
	for _, r := range rows {
		if i, twice := at[string(r.UPID)]; twice {
			if r.ended() {
				out[i] = r
			}
			continue
		}
		at[string(r.UPID)] = len(out)
		out = append(out, r)
	}
	return out
}

func parseSince(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	if t, err := time.Parse(time.DateOnly, s); err == nil {
		return t, nil
	}
	unit := map[byte]time.Duration{'m': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour}[s[len(s)-1]]
	var n int
	if _, err := fmt.Sscanf(s[:len(s)-1], "%d", &n); err == nil && unit > 0 && n > 0 && n < 100_000 && fmt.Sprint(n) == s[:len(s)-1] {
		return now.Add(-time.Duration(n) * unit), nil
	}
	return time.Time{}, gate.Fail(gate.ErrInvalid, "Give it as 30m, 24h, 7d, 2w, or as 2026-01-31T00:00:00Z.", "since %q is not understood", clip(s, 40))
}
