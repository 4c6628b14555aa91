package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"castellan/internal/cli"
	"castellan/internal/draw"
	"castellan/internal/gate"
)

// graphThing is a thing as estate_graph answers it.
type graphThing struct {
	ID     string            `json:"id"`
	Title  string            `json:"title,omitempty"`
	Facts  map[string]string `json:"facts,omitempty"`
	Age    int64             `json:"age"`
	Unseen bool              `json:"unseen,omitempty"`
	Needs  []graphNeed       `json:"needs,omitempty"`
}

type graphNeed struct {
	To      string `json:"to"`
	How     string `json:"how"`
	Key     string `json:"key,omitempty"`
	Unknown bool   `json:"unknown,omitempty"`
}

// graphAnswer is a whole graph, its pages put together.
type graphAnswer struct {
	Target     string       `json:"target"`
	Depth      string       `json:"depth"`
	Of         string       `json:"of,omitempty"`
	Things     int          `json:"things"`
	Edges      int          `json:"edges"`
	Vertices   []graphThing `json:"vertices"`
	Incomplete []string     `json:"incomplete,omitempty"`
	NextCursor string       `json:"next_cursor,omitempty"`
}

const (
	graphPage  = 5000
	graphPages = 100
	// mostDrawn bounds what is drawn as SVG: more can be told apart by no eye.
	mostDrawn = 800
)

func (a *app) estateCommand(c cli.Config) *cobra.Command {
	root := &cobra.Command{Use: "estate", Short: "What there is at a target, and what depends on what"}
	var ask struct {
		Depth  string `json:"depth,omitempty"`
		Of     string `json:"of,omitempty"`
		Hops   int    `json:"hops,omitempty"`
		Limit  int    `json:"limit,omitempty"`
		Cursor string `json:"cursor,omitempty"`
		Target string `json:"target,omitempty"`
	}
	var dot, svg bool
	graph := &cobra.Command{Use: "graph", Short: "Show the graph of guests, disks, storages, nodes, networks and jobs: as lines, --json, --dot or --svg", Args: cobra.NoArgs}
	graph.RunE = func(cmd *cobra.Command, _ []string) error {
		if n := count(dot, svg, cli.JSON(cmd)); n > 1 {
			return cli.Usage{Err: fmt.Errorf("give one of --json, --dot and --svg")}
		}
		g, done, err := c.Open(cmd.Context())
		if err != nil {
			return err
		}
		defer done()
		var whole graphAnswer
		ask.Limit = graphPage
		for range graphPages {
			args, err := json.Marshal(ask)
			if err != nil {
				return fmt.Errorf("write arguments: %w", err)
			}
			out, err := g.Do(cmd.Context(), gate.Call{Operation: "estate_graph", Args: args, Principal: c.Principal}, nil)
			if err != nil {
				return err
			}
			var page graphAnswer
			if err := json.Unmarshal(out.Answer, &page); err != nil {
				return fmt.Errorf("read the graph: %w", err)
			}
			for _, n := range out.Notices {
				fmt.Fprintln(a.err, "castellan: "+cli.Safe(n))
			}
			page.Vertices = append(whole.Vertices, page.Vertices...)
			whole = page
			if ask.Cursor = page.NextCursor; ask.Cursor == "" {
				break
			}
		}
		switch {
		case cli.JSON(cmd):
			return cli.PrintJSON(a.out, whole)
		case dot:
			things, links := whole.drawn()
			fmt.Fprint(a.out, draw.DOT(whole.title(), things, links))
		case svg:
			things, links := whole.drawn()
			if len(things) > mostDrawn {
				return &gate.Error{Kind: gate.ErrInvalid, Message: fmt.Sprintf("%d things are more than a drawing can show (%d)", len(things), mostDrawn), Changed: "nothing",
					Hint: "Draw a part of it, --of node/NAME or --of guest/ID; --dot and --json give all."}
			}
			fmt.Fprintln(a.out, draw.Graph(whole.title(), strings.Join(whole.Incomplete, "; "), things, links, graphColumn))
		default:
			whole.print(a)
		}
		if len(whole.Incomplete) > 0 && !cli.JSON(cmd) {
			fmt.Fprintln(a.err, "not complete:")
			for _, line := range whole.Incomplete {
				fmt.Fprintln(a.err, "  "+cli.Safe(line))
			}
		}
		return nil
	}
	graph.Flags().StringVar(&ask.Depth, "depth", "", "resource (default): what the site tells as a whole; config: also disks, cards, snapshots, bridges, archives")
	graph.Flags().StringVar(&ask.Of, "of", "", "only this and what it is connected to: guest/101, node/pve1, storage/nas, ...")
	graph.Flags().IntVar(&ask.Hops, "hops", 0, "with --of: how far to follow what depends on it, 1 to 4; default 2 from a storage at depth config, else 1")
	graph.Flags().StringVar(&ask.Target, "target", "", "which target, where there are several")
	graph.Flags().BoolVar(&dot, "dot", false, "write it for Graphviz")
	graph.Flags().BoolVar(&svg, "svg", false, "draw it as SVG")
	root.AddCommand(graph)
	return root
}

func count(all ...bool) int {
	n := 0
	for _, b := range all {
		if b {
			n++
		}
	}
	return n
}

func (g *graphAnswer) title() string {
	title := "What depends on what at " + g.Target
	if g.Of != "" {
		title += ", around " + g.Of
	}
	return title
}

// drawn is the graph without rights and principals that nothing else in it is about.
func (g *graphAnswer) drawn() (things []draw.Thing, links []draw.Link) {
	for _, v := range g.Vertices {
		kind, _, _ := strings.Cut(v.ID, "/")
		title := v.Title
		if title == "" {
			title = v.ID
		}
		if s := v.Facts["status"]; s != "" && s != "running" && s != "online" && s != "available" {
			title += " – " + s
		}
		things = append(things, draw.Thing{ID: v.ID, Title: title, Kind: kind, Ghost: v.Unseen})
		for _, n := range v.Needs {
			links = append(links, draw.Link{From: v.ID, To: n.To, Kind: n.How, Key: n.Key, Unknown: n.Unknown})
		}
	}
	return things, links
}

// graphColumn puts what depends on others to the left of these.
func graphColumn(kind string) (int, string) {
	columns := []struct {
		heading string
		kinds   []string
	}{
		{"Rights, jobs, rules", []string{"acl", "job", "ha_rule", "replication"}},
		{"Users, HA, pools, snapshots, archives", []string{"user", "ha", "snapshot", "archive", "pool"}},
		{"Guests", []string{"guest"}},
		{"Disks and networks", []string{"volume", "bridge", "vnet", "unknown"}},
		{"Storages, zones, interfaces", []string{"storage", "zone", "interface", "ceph"}},
	}
	for i, c := range columns {
		if slices.Contains(c.kinds, kind) {
			return i, c.heading
		}
	}
	return len(columns), "Nodes"
}

// print writes one thing a line, and below it what it needs.
func (g *graphAnswer) print(a *app) {
	line := func(s string) string { return strings.NewReplacer("\n", " ", "\t", " ").Replace(cli.Safe(s)) }
	fmt.Fprintf(a.out, "%d things, %d edges, depth %s\n", g.Things, g.Edges, g.Depth)
	for _, v := range g.Vertices {
		text := v.ID
		if v.Title != "" {
			text += "  " + v.Title
		}
		if v.Unseen {
			text += "  (named, never seen)"
		}
		fmt.Fprintln(a.out, line(text))
		for _, n := range v.Needs {
			how := strings.ReplaceAll(n.How, "_", " ")
			if n.Key != "" {
				how += " (" + n.Key + ")"
			}
			if n.Unknown {
				how = "perhaps " + how
			}
			fmt.Fprintln(a.out, "    "+line(how+" "+n.To))
		}
	}
}
