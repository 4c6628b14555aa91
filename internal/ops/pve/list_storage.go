package pve

import (
	"context"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/ops/table"
)

type listStorageIn struct {
	Node    string `json:"node,omitempty"`
	Content string `json:"content,omitempty" jsonschema:"e.g. backup"`
	Cursor  string `json:"cursor,omitempty"`
	Target  string `json:"target,omitempty"`
}

type storageRow struct {
	Storage  string   `json:"storage"`
	Type     string   `json:"type,omitempty"`
	Content  []string `json:"content,omitempty"`
	Shared   bool     `json:"shared"`
	Node     string   `json:"node,omitempty"`  // of a storage that each node has for itself
	Nodes    []string `json:"nodes,omitempty"` // that see a shared one
	Status   string   `json:"status"`          // available, disabled, unknown, or the server's word
	Used     int64    `json:"used"`
	Total    int64    `json:"total"`
	Percent  string   `json:"percent,omitempty"`
	Disabled bool     `json:"disabled,omitempty"`
}

type listStorageOut struct {
	Storages []map[string]any `json:"storages"`
	table.Count
	Used       int64    `json:"used"`  // of all that match; each shared storage counted once
	Total      int64    `json:"total"` // of all that match; each shared storage counted once
	Incomplete []string `json:"incomplete,omitempty"`
}

func listStorage() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "list_storage", Summary: "List storages with use; shared ones once. Read", Product: "pve", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "disk space free full capacity datastore nfs zfs lvm ceph backup iso where get_storage", Toolset: "standard", Bounded: true,
	}, runListStorage)
}

func runListStorage(ctx context.Context, v gate.View, in listStorageIn) (listStorageOut, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return listStorageOut{}, err
	}
	if in.Node != "" {
		if _, err := s.inv.Node(in.Node); err != nil {
			return listStorageOut{}, err
		}
	}
	rows, missing := s.storages(ctx)
	out := listStorageOut{Incomplete: missing}
	var matched []storageRow
	for _, r := range rows {
		if in.Content != "" && !slices.Contains(r.Content, in.Content) || in.Node != "" && r.Node != in.Node && !slices.Contains(r.Nodes, in.Node) {
			continue
		}
		matched = append(matched, r)
		out.Used, out.Total = out.Used+r.Used, out.Total+r.Total
	}
	out.Storages, out.Count, err = table.Cut(table.Ask{Cursor: in.Cursor}, storageColumns, matched, func(r storageRow) string { return r.Storage + "@" + r.Node },
		func(r storageRow) map[string]any {
			row := map[string]any{"storage": r.Storage, "type": r.Type, "content": strings.Join(r.Content, ","), "shared": r.Shared, "node": r.Node, "nodes": strings.Join(r.Nodes, ","),
				"status": r.Status, "percent": r.Percent}
			if !r.Disabled {
				row["used"], row["total"] = r.Used, r.Total
			}
			return row
		})
	return out, err
}

var storageColumns = table.Columns{All: []string{"storage", "type", "content", "shared", "node", "nodes", "status", "used", "total", "percent"}}

// storageConfig is a storage as it is defined for the site.
type storageConfig struct {
	Storage estate.Text `json:"storage"`
	Type    estate.Text `json:"type"`
	Content estate.Text `json:"content"`
	Nodes   estate.Text `json:"nodes"`
	Shared  estate.Bool `json:"shared"`
	Disable estate.Bool `json:"disable"`
}

// storages joins what is defined with what the nodes report. A shared storage is one row; a storage is not shown on
// nodes that it is restricted from.
func (s *site) storages(ctx context.Context) (rows []storageRow, missing []string) {
	missing = slices.Clone(s.inv.Missing)
	var defined []storageConfig
	configs := map[string]storageConfig{}
	if _, err := s.read(ctx, &defined, "GET /storage", nil); err != nil {
		missing = append(missing, "the storage definitions could not be read (disabled storages and node limits are not known): "+clip(err.Error(), 200))
	}
	for _, c := range defined {
		configs[string(c.Storage)] = c
	}
	off := map[string]bool{}
	for _, n := range s.inv.Nodes {
		off[n.Name] = n.Status != "online"
	}
	shared := map[string]int{}
	seen := map[string]bool{}
	for _, st := range s.inv.Storages {
		c, known := configs[st.Name]
		if limit := estate.Tags(string(c.Nodes)); known && len(limit) > 0 && !slices.Contains(limit, st.Node) {
			continue
		}
		seen[st.Name] = true
		status := st.Status
		if off[st.Node] {
			status = "unknown"
		}
		if !st.Shared {
			rows = append(rows, storageRow{Storage: st.Name, Type: st.Type, Content: content(st.Content), Node: st.Node, Status: status, Used: st.Used, Total: st.Total,
				Percent: percent(st.Used, st.Total)})
			continue
		}
		i, again := shared[st.Name]
		if !again {
			i = len(rows)
			shared[st.Name] = i
			rows = append(rows, storageRow{Storage: st.Name, Type: st.Type, Content: content(st.Content), Shared: true, Status: status})
		}
		r := &rows[i]
		r.Nodes = append(r.Nodes, st.Node)
		if status == "available" { // one node that reaches it shows that it lives
			r.Status = status
		} else if r.Status != "available" && r.Status == "unknown" {
			r.Status = status
		}
		if st.Total > r.Total { // nodes report the same figures, some of them late
			r.Used, r.Total, r.Percent = st.Used, st.Total, percent(st.Used, st.Total)
		}
	}
	for _, c := range defined {
		if seen[string(c.Storage)] {
			continue
		}
		r := storageRow{Storage: string(c.Storage), Type: string(c.Type), Content: content(string(c.Content)), Shared: bool(c.Shared), Status: "unknown", Nodes: estate.Tags(string(c.Nodes))}
		if c.Disable {
			r.Status, r.Disabled = "disabled", true
		} else {
			missing = append(missing, "storage "+r.Storage+" is defined but no node reports it")
		}
		rows = append(rows, r)
	}
	slices.SortStableFunc(rows, func(a, b storageRow) int {
		if d := strings.Compare(a.Storage, b.Storage); d != 0 {
			return d
		}
		return strings.Compare(a.Node, b.Node)
	})
	if len(rows) == 0 {
		missing = append(missing, s.blind(ctx, "Datastore.Audit", "storages"))
	}
	return rows, missing
}

// content splits and sorts a content list, which comes in random order.
func content(s string) []string {
	l := estate.Tags(s)
	slices.Sort(l)
	return l
}
