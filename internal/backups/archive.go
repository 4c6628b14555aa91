package backups

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// Archive is one backup as a storage lists it.
type Archive struct {
	Volume    string // "nas:backup/vzdump-qemu-101-….vma.zst", "pbs1:backup/vm/101/2026-…Z"
	Storage   string
	Node      string // a node that reaches it
	Guest     string // the id in its name
	Kind      string // estate.VM or estate.CT; empty = not told
	Time      time.Time
	Size      int64
	Format    string
	Notes     string // free text of others
	Protected bool
	Encrypted bool
	Verify    string // what the backup server last found: ok, failed; empty = never verified, or no backup server
	Owner     string // on a backup server that is a target of its own: whose group it is

	Whose Whose
	Why   string // for all but Own

	away bool // on a backup server, where no storage of the site leads
}

// Away says that no storage of the site leads to it: it is seen on the backup server alone.
func (a Archive) Away() bool { return a.away }

// Whose says whose backup an archive is, as far as can be proven.
type Whose string

// The answers. Only Own is proven; Likely has nothing against it and the task log does not reach back to it.
const (
	Own     Whose = "own"
	Likely  Whose = "likely"
	Earlier Whose = "earlier" // of another guest that had the id before
	Foreign Whose = "foreign" // of another cluster's guest of that id
	Unknown Whose = "unknown" // it may be another cluster's
	Orphan  Whose = "orphan"  // no guest has the id
)

// Counts says whether the archive may be taken for a backup of the guest that has the id now.
func (a Archive) Counts() bool { return (a.Whose == Own || a.Whose == Likely) && a.Verify != "failed" }

// store is a storage for backups as one node reaches it, or as any of several.
type store struct {
	name   string
	typ    string
	shared bool
	nodes  []string // that may be asked, in turn
	ns     string
	server string
	user   string
	data   string // datastore

	read bool
	gap  string // why it could not be read
}

// storageRow is a storage's definition.
type storageRow struct {
	Storage   estate.Text `json:"storage"`
	Type      estate.Text `json:"type"`
	Content   estate.Text `json:"content"`
	Nodes     estate.Text `json:"nodes"`
	Disable   estate.Bool `json:"disable"`
	Shared    estate.Bool `json:"shared"`
	Namespace estate.Text `json:"namespace"`
	Server    estate.Text `json:"server"`
	Username  estate.Text `json:"username"`
	Datastore estate.Text `json:"datastore"`
}

// shareable are the storage types that other clusters can write to as well.
var shareable = []string{"pbs", "nfs", "cifs", "cephfs", "glusterfs"}

// findStores decides which storages are asked, and from which node: a shared one once.
func (s *Site) findStores(defined []storageRow, failed error) {
	rows := map[string]storageRow{}
	for _, d := range defined {
		rows[string(d.Storage)] = d
	}
	if failed != nil {
		s.miss("the storage definitions could not be read: " + why(failed))
	}
	online := s.Inventory.Online()
	at := map[string]int{}
	listed := map[string]bool{}
	for _, st := range s.Inventory.Storages {
		d, known := rows[st.Name]
		if !slices.Contains(estate.Tags(st.Content), "backup") {
			continue
		}
		if limit := estate.Tags(string(d.Nodes)); known && len(limit) > 0 && !slices.Contains(limit, st.Node) {
			continue
		}
		listed[st.Name] = true
		i, again := at[st.Name]
		if !again || !st.Shared {
			i = len(s.stores)
			at[st.Name] = i
			s.stores = append(s.stores, store{name: st.Name, typ: st.Type, shared: st.Shared, ns: string(d.Namespace), server: string(d.Server), user: string(d.Username), data: string(d.Datastore)})
		}
		if !slices.Contains(online, st.Node) {
			if !st.Shared {
				s.stores[i].gap = "node " + st.Node + " is not online"
			}
			continue
		}
		if st.Status == "available" { // who reaches it is asked first
			s.stores[i].nodes = slices.Insert(s.stores[i].nodes, 0, st.Node)
		} else {
			s.stores[i].nodes = append(s.stores[i].nodes, st.Node)
		}
	}
	for _, d := range defined {
		name := string(d.Storage)
		if listed[name] || !slices.Contains(estate.Tags(string(d.Content)), "backup") {
			continue
		}
		st := store{name: name, typ: string(d.Type), gap: "no node reports it"}
		if d.Disable {
			st.gap = "it is disabled"
		}
		s.stores = append(s.stores, st)
	}
	if len(s.stores) == 0 {
		s.miss("no storage for backups can be seen: there is none, or Datastore.Audit on /storage is missing")
	}
}

// readStore lists the archives of a storage; a second node is asked when the first cannot.
func (s *Site) readStore(r reader, st *store, lock sync.Locker) {
	var rows []map[string]json.RawMessage
	var err error
	node := ""
	for _, n := range st.nodes[:min(2, len(st.nodes))] {
		node = n
		params := map[string]string{"node": n, "storage": st.name, "content": "backup"}
		if s.q.Guest != "" {
			params["vmid"] = s.q.Guest
		}
		rows = nil
		if err = r.get(&rows, "GET /nodes/{node}/storage/{storage}/content", params); err == nil {
			break
		}
	}
	lock.Lock()
	defer lock.Unlock()
	switch {
	case node == "":
		if st.gap == "" {
			st.gap = "no node that reaches it is online"
		}
	case err != nil:
		st.gap = why(err)
	default:
		st.read, st.gap = true, ""
	}
	where := st.name
	if !st.shared && node != "" {
		where += " of node " + node
	}
	if !st.read {
		if st.gap != "it is disabled" {
			s.miss("storage " + where + " could not be read: " + st.gap + "; archives there are not counted")
		}
		return
	}
	for _, raw := range rows {
		if a, ok := parseArchive(raw, st, node); ok {
			s.Archives = append(s.Archives, a)
		}
	}
	if s.q.Guest != "" && !s.rights.seesArchives(st.name, s.q.Guest) {
		s.lack("archives on storage "+where+" are hidden from castellan's user: "+grantFor(st.name, s.q.Guest), "storage "+where, "archives are hidden from castellan's user",
			Grant{"/storage/" + st.name, "Datastore.AllocateSpace"}, Grant{"/vms/" + s.q.Guest, "VM.Backup"})
	}
	if s.q.Guest == "" && !s.rights.has("/storage/"+st.name, "Datastore.Allocate") && !(s.rights.has("/storage/"+st.name, "Datastore.AllocateSpace") && s.rights.whole("/vms", "VM.Backup")) {
		s.lack("storage "+where+" may hold archives that castellan's user is not shown: "+grantFor(st.name, ""), "storage "+where, "it may hold archives that castellan's user is not shown",
			Grant{"/storage/" + st.name, "Datastore.AllocateSpace"}, Grant{"/vms", "VM.Backup"})
	}
}

func parseArchive(raw map[string]json.RawMessage, st *store, node string) (Archive, bool) {
	text := func(key string) string {
		var t estate.Text
		if b := raw[key]; len(b) > 0 {
			_ = t.UnmarshalJSON(b) // takes everything
		}
		return string(t)
	}
	number := func(key string) int64 {
		var n estate.Int
		if b := raw[key]; len(b) > 0 {
			_ = n.UnmarshalJSON(b) // takes everything
		}
		return int64(n)
	}
	a := Archive{Volume: text("volid"), Storage: st.name, Node: node, Size: number("size"), Format: text("format"), Notes: text("notes"), Guest: text("vmid")}
	if content := text("content"); content != "" && content != "backup" || a.Volume == "" {
		return a, false
	}
	if a.Guest == "" || a.Guest == "0" {
		_, name, _ := strings.Cut(a.Volume, ":")
		a.Guest = estate.OwnerOf(name)
	}
	if t := number("ctime"); t > 0 {
		a.Time = time.Unix(t, 0).UTC()
	}
	switch {
	case text("subtype") == "qemu", strings.Contains(a.Volume, "/vzdump-qemu-"), strings.Contains(a.Volume, ":backup/vm/"):
		a.Kind = estate.VM
	case text("subtype") == "lxc", strings.Contains(a.Volume, "/vzdump-lxc-"), strings.Contains(a.Volume, ":backup/ct/"):
		a.Kind = estate.CT
	}
	a.Protected = text("protected") == "1" || text("protected") == "true"
	if e := text("encrypted"); e != "" && e != "0" && e != "false" {
		a.Encrypted = true
	}
	var check struct {
		State string `json:"state"`
	}
	if json.Unmarshal(raw["verification"], &check) == nil {
		a.Verify = check.State
	}
	return a, true
}

// Shared says whether other clusters could have put archives onto a storage.
func (s *Site) otherClusters(storage string) bool {
	return slices.ContainsFunc(s.stores, func(st store) bool { return st.name == storage && slices.Contains(shareable, st.typ) })
}

func (s *Site) isPBS(storage string) bool {
	return slices.ContainsFunc(s.stores, func(st store) bool { return st.name == storage && st.typ == "pbs" })
}

// attribute says whose each archive is.
func (s *Site) attribute(r reader) {
	s.askOwners(r)
	s.proveByLog(r)
	for i := range s.Archives {
		a := &s.Archives[i]
		a.Whose, a.Why = s.whose(a)
	}
	s.readBirths(r)
}

func (s *Site) whose(a *Archive) (Whose, string) {
	g, live := s.Inventory.ByID(a.Guest)
	if !live {
		if a.Guest != "" && s.allSeen && !s.scoped {
			return Orphan, "no guest has the id " + a.Guest
		}
		return Unknown, "no guest of that id can be seen"
	}
	if a.Kind != "" && a.Kind != g.Kind {
		return Earlier, "it is of a " + strings.ToUpper(a.Kind) + ", and " + a.Guest + " is a " + strings.ToUpper(g.Kind) + " now"
	}
	if a.Time.IsZero() {
		return Unknown, "it has no time"
	}
	if born, how := s.born(g.ID); a.Time.Before(born) {
		return Earlier, how + " " + born.Format(time.RFC3339) + ", after this backup"
	}
	if a.Owner != "" {
		if own := s.storeUser(a.Storage); own != "" && !ownedBy(a.Owner, own) {
			return Foreign, "its group on the backup server belongs to another user"
		}
	}
	if a.away || s.otherClusters(a.Storage) {
		switch made, sure := s.madeHere(a); {
		case made && sure:
			return Own, ""
		case !made && sure:
			return Foreign, "no backup task of this cluster ran at that time"
		case s.scoped && (a.away || s.isPBS(a.Storage)):
			return Unknown, "this caller's scope shows it the tasks of its own guests only, which do not prove that this cluster made it, and another cluster may have a guest " + a.Guest
		case a.away || s.isPBS(a.Storage):
			return Unknown, "the task logs do not prove that this cluster made it, and another cluster may have a guest " + a.Guest
		}
		return Likely, "the task logs do not reach back to it"
	}
	if s.logsReach(a.Time) {
		return Own, ""
	}
	return Likely, "the task logs do not reach back to it"
}

func (s *Site) storeUser(name string) string {
	i := slices.IndexFunc(s.stores, func(st store) bool { return st.name == name })
	if i < 0 {
		return ""
	}
	return s.stores[i].user
}

// maxConfigs bounds how many guests' settings are read for the time of their making.
const maxConfigs = 60

// readBirths reads the settings of VMs whose newest archive the task logs do not reach: they tell when they were first made.
func (s *Site) readBirths(r reader) {
	newest := map[string]time.Time{}
	for _, a := range s.Archives {
		if a.Whose == Likely && a.Time.After(newest[a.Guest]) {
			newest[a.Guest] = a.Time
		}
	}
	var ask []estate.Guest
	for _, g := range s.Inventory.Guests {
		if !newest[g.ID].IsZero() && g.Kind == estate.VM && !g.NodeOff && !g.Template {
			ask = append(ask, g)
		}
	}
	if over := len(ask) - maxConfigs; over > 0 {
		ask = ask[:maxConfigs]
		s.miss(fmt.Sprintf("of %d more guests it was not read when they were made: their archives count as theirs unless the task log says otherwise", over))
	}
	made := make([]time.Time, len(ask))
	each(len(ask), func(i int) {
		c, _, err := estate.ReadConfig(r.ctx, r.v, r.target, ask[i])
		if err != nil {
			return
		}
		if text, ok := gate.PropertyValue(c["meta"], "ctime"); ok {
			var n estate.Int
			_ = n.UnmarshalJSON([]byte(text)) // takes everything
			made[i] = time.Unix(int64(n), 0).UTC()
		}
	})
	for i, g := range ask {
		if made[i].IsZero() || made[i].Unix() <= 0 {
			continue
		}
		for k := range s.Archives {
			if a := &s.Archives[k]; a.Guest == g.ID && (a.Whose == Likely || a.Whose == Unknown) && a.Time.Before(made[i]) {
				a.Whose, a.Why = Earlier, "the guest was made "+made[i].Format(time.RFC3339)+", after this backup"
			}
		}
	}
}
