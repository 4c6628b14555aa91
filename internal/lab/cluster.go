package lab

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"
)

const (
	pveVersion = "9.2.11"
	pveRelease = "9.2"
	pveRepoID  = "14a22df35955d97d"
)

func version(c *call) (any, error) {
	return M{"version": pveVersion, "release": pveRelease, "repoid": pveRepoID}, nil
}

func clusterStatus(c *call) (any, error) {
	s := c.s
	out := []M{{"id": "cluster", "type": "cluster", "name": s.cluster, "nodes": len(s.nodes), "quorate": b2i(!s.noQuorum), "version": s.version}}
	for _, n := range s.nodes {
		m := M{"id": "node/" + n.name, "type": "node", "name": n.name, "nodeid": n.id, "ip": n.ip, "local": b2i(n == c.local), "online": b2i(n.state != NodeOff && n.state != NodeHanging), "level": ""}
		out = append(out, m)
	}
	return out, nil
}

func nextID(c *call) (any, error) {
	if c.has("vmid") {
		id := c.num("vmid")
		if c.s.guests[id] != nil {
			return nil, bad("vmid", "VM %d already exists", id)
		}
		return strconv.Itoa(id), nil
	}
	low, high := 100, 1000000
	if t, ok := c.s.options["next-id"].(M); ok {
		if n := atoi(fmt.Sprint(t["lower"])); n > 0 {
			low = n
		}
		if n := atoi(fmt.Sprint(t["upper"])); n > 0 {
			high = n
		}
	}
	for id := low; id < high; id++ {
		if c.s.guests[id] == nil {
			return strconv.Itoa(id), nil
		}
	}
	return nil, die("unable to get any free VMID in range [%d, %d]", low, high)
}

// objectOptions are cluster options that are shown as objects although sent as property strings.
var objectOptions = map[string]bool{"tag-style": true, "bwlimit": false, "crs": true, "ha": true, "migration": true, "next-id": true, "notify": true, "u2f": true, "user-tag-access": true, "webauthn": true, "replication": true}

func clusterOptions(c *call) (any, error) {
	tags := map[string]bool{}
	for id, g := range c.s.guests {
		if c.can(fmt.Sprintf("/vms/%d", id), "VM.Audit") {
			for _, t := range splitList(g.conf["tags"]) {
				tags[t] = true
			}
		}
	}
	list := sortedKeys(tags)
	if !c.can("/", "Sys.Audit") {
		return M{"allowed-tags": list}, nil
	}
	m := copyM(c.s.options)
	if _, ok := m["description"]; !ok {
		m["description"] = ""
	}
	if _, ok := m["mac_prefix"]; !ok {
		m["mac_prefix"] = "BC:24:11"
	}
	m["allowed-tags"] = list
	return m, nil
}

func setClusterOptions(c *call) (any, error) {
	for _, k := range splitList(c.str("delete")) {
		if lookup(c.op.Params, k) == nil || k == "delete" {
			return nil, bad("delete", "no such option '%s'", k)
		}
		delete(c.s.options, k)
	}
	for k := range c.p {
		if k == "delete" {
			continue
		}
		v := c.typedParam(k)
		if sch := c.op.Params[k]; sch != nil && sch.Format != nil && sch.Format.Schema != nil && objectOptions[k] {
			parsed, _ := c.s.api.propertyString(sch.Format.Schema.Properties, c.str(k), k)
			obj := M{}
			for a, b := range parsed {
				obj[a] = b
				if ps := sch.Format.Schema.Properties[a]; ps != nil && (ps.Type == "integer" || ps.Type == "boolean") {
					obj[a] = number(b)
				}
			}
			v = obj
		}
		if k == "description" {
			t := c.str(k)
			if t != "" && !strings.HasSuffix(t, "\n") {
				t += "\n"
			}
			v = t
		}
		if k == "registered-tags" {
			v = splitList(c.str(k))
		}
		c.s.options[k] = v
	}
	return nil, nil
}

func clusterLog(c *call) (any, error) {
	out := []M{}
	if !c.can("/", "Sys.Syslog") {
		return out, nil
	}
	max := c.numOr("max", 0)
	for i := len(c.s.tasks) - 1; i >= 0 && (max == 0 || len(out) < max) && len(out) < 500; i-- {
		t := c.s.tasks[i]
		out = append(out, M{"uid": i + 1, "time": t.start.Unix(), "msg": "starting task " + t.upid, "node": t.node, "pid": t.pid, "pri": 6, "tag": "pvedaemon", "user": t.user.id(), "id": fmt.Sprintf("%d:%s", i+1, t.node)})
	}
	if len(out) == 0 {
		out = append(out, M{"uid": 1, "time": c.s.boot.Unix(), "msg": "starting cluster", "node": c.local.name, "pid": 1, "pri": 6, "tag": "pmxcfs", "user": "root@pam", "id": "1:" + c.local.name})
	}
	return out, nil
}

func corosyncNodes(c *call) (any, error) {
	out := []M{}
	for _, n := range c.s.nodes {
		out = append(out, M{"name": n.name, "node": n.name, "nodeid": fmt.Sprint(n.id), "quorum_votes": "1", "ring0_addr": n.ip})
	}
	return out, nil
}

func (s *state) totem() M {
	return M{"cluster_name": s.cluster, "config_version": fmt.Sprint(s.version), "interface": M{"0": M{"linknumber": "0"}}, "ip_version": "ipv4-6", "link_mode": "passive", "secauth": "on", "version": "2"}
}

func totem(c *call) (any, error) { return c.s.totem(), nil }

func joinInfo(c *call) (any, error) {
	list := []M{}
	for _, n := range c.s.nodes {
		list = append(list, M{"name": n.name, "nodeid": fmt.Sprint(n.id), "pve_addr": n.ip, "pve_fp": n.fingerprint, "quorum_votes": "1", "ring0_addr": n.ip})
	}
	return M{"config_digest": digestOf(c.s.cluster), "nodelist": list, "preferred_node": firstNonEmpty(c.str("node"), c.local.name), "totem": c.s.totem()}, nil
}

// Backup jobs.

func (s *state) dropJob(id string) {
	delete(s.jobs, id)
	for i, x := range s.jobOrder {
		if x == id {
			s.jobOrder = append(s.jobOrder[:i:i], s.jobOrder[i+1:]...)
			return
		}
	}
}

func (c *call) jobShow(id string) M {
	m := copyM(c.s.jobs[id])
	m["id"], m["type"] = id, "vzdump"
	if e, ok := m["enabled"]; !ok || fmt.Sprint(e) != "0" || true {
		if cal, ok := parseCalendar(fmt.Sprint(m["schedule"])); ok {
			if at := cal.next(c.s.now); !at.IsZero() {
				m["next-run"] = at.Unix()
			}
		}
		_ = e
	}
	return m
}

func listJobs(c *call) (any, error) {
	out := []M{}
	for _, id := range c.s.jobOrder {
		out = append(out, c.jobShow(id))
	}
	return out, nil
}

func getJob(c *call) (any, error) {
	id := c.str("id")
	if c.s.jobs[id] == nil {
		return nil, bad("id", "No such job '%s'", id)
	}
	m := c.jobShow(id)
	delete(m, "next-run")
	return m, nil
}

// jobParams turns parameters into a job's stored keys.
func (c *call) jobParams(m M) error {
	sel := 0
	var first string
	for _, k := range []string{"all", "vmid", "pool"} {
		if c.has(k) && !(k == "all" && !c.flag(k)) {
			sel++
			if first == "" {
				first = k
			}
		}
	}
	if sel > 1 {
		other := "vmid"
		if !c.has("vmid") {
			other = "pool"
		}
		return wrapped(map[string]string{first: "option conflicts with option '" + other + "'"})
	}
	for k := range c.p {
		switch k {
		case "id", "delete", "starttime", "dow", "comment-delete":
			continue
		case "prune-backups", "fleecing", "performance":
			obj := M{}
			for a, b := range parseKeep(c.str(k)) {
				obj[a] = b
			}
			m[k] = obj
		default:
			m[k] = c.typedParam(k)
		}
	}
	if c.has("starttime") {
		m["schedule"] = c.str("starttime")
		if c.has("dow") {
			m["schedule"] = c.str("dow") + " " + c.str("starttime")
		}
	}
	return nil
}

func (c *call) jobRights() error {
	if c.has("pool") && c.s.pools[c.str("pool")] == nil {
		return denied("pool '" + c.str("pool") + "' does not exist")
	}
	for _, k := range []string{"tmpdir", "dumpdir", "script"} {
		if c.has(k) && !c.user.root() {
			return denied("parameter '" + k + "' is only allowed for root@pam")
		}
	}
	if st := c.str("storage"); st != "" && c.s.storages[st] != nil {
		return c.need("/storage/"+st, "Datastore.Allocate")
	}
	return nil
}

func createJob(c *call) (any, error) {
	if err := c.jobRights(); err != nil {
		return nil, err
	}
	id := c.str("id")
	if id == "" {
		id = "backup-" + newUUID()[:13]
	}
	m := M{"enabled": 1}
	if err := c.jobParams(m); err != nil {
		return nil, err
	}
	if !c.has("vmid") && !c.has("pool") && !c.flag("all") {
		return nil, wrapped(map[string]string{"vmid": "property is missing"})
	}
	if c.has("starttime") && c.has("schedule") {
		return nil, bad("schedule", "'starttime' and 'schedule' cannot both be set")
	}
	if m["schedule"] == nil {
		return nil, bad("schedule", "property is missing and it is not optional")
	}
	if c.s.jobs[id] != nil {
		return nil, die("Job '%s' already exists", id)
	}
	c.s.jobs[id] = m
	c.s.jobOrder = append(c.s.jobOrder, id)
	return nil, nil
}

func updateJob(c *call) (any, error) {
	if err := c.jobRights(); err != nil {
		return nil, err
	}
	job := c.s.jobs[c.str("id")]
	if job == nil {
		return nil, die("no such vzdump job")
	}
	m := copyM(job)
	for _, k := range splitList(c.str("delete")) {
		if lookup(c.op.Params, k) == nil {
			return nil, bad("delete", "unknown option '%s'", k)
		}
		delete(m, k)
	}
	if err := c.jobParams(m); err != nil {
		return nil, err
	}
	for _, k := range []string{"all", "vmid", "pool"} {
		if !c.has(k) || k == "all" && !c.flag(k) {
			continue
		}
		for _, other := range []string{"all", "vmid", "pool"} {
			if other != k {
				delete(m, other)
			}
		}
		if k != "all" {
			delete(m, "exclude")
		}
	}
	c.s.jobs[c.str("id")] = m
	return nil, nil
}

func deleteJob(c *call) (any, error) {
	id := c.str("id")
	if c.s.jobs[id] == nil {
		return nil, wrapped(map[string]string{"id": "No such job '" + id + "'"})
	}
	c.s.dropJob(id)
	return nil, nil
}

// jobGuests are the guests that a job selects.
func (s *state) jobGuests(j M) []int {
	var out []int
	skip := map[int]bool{}
	ex, _ := j["exclude"].(string)
	for _, v := range splitList(ex) {
		skip[atoi(v)] = true
	}
	list, _ := j["vmid"].(string)
	pool, _ := j["pool"].(string)
	for _, id := range s.sortedIDs() {
		switch {
		case skip[id]:
		case fmt.Sprint(j["all"]) == "1", pool != "" && s.guestPool[id] == pool, contains(splitList(list), strconv.Itoa(id)):
			if n, _ := j["node"].(string); n == "" || s.guests[id].node == n {
				out = append(out, id)
			}
		}
	}
	return out
}

func notBackedUp(c *call) (any, error) {
	in := map[int]bool{}
	for _, j := range c.s.jobs {
		for _, id := range c.s.jobGuests(j) {
			in[id] = true
		}
	}
	out := []M{}
	for _, id := range c.s.sortedIDs() {
		if g := c.s.guests[id]; !in[id] && c.can(fmt.Sprintf("/vms/%d", id), "VM.Audit") {
			out = append(out, M{"vmid": id, "name": g.name(), "type": g.kind})
		}
	}
	return out, nil
}

func includedVolumes(c *call) (any, error) {
	j := c.s.jobs[c.str("id")]
	if j == nil {
		return nil, bad("id", "No such job '%s'", c.str("id"))
	}
	kids := []M{}
	for _, id := range c.s.jobGuests(j) {
		g := c.s.guests[id]
		vols := []M{}
		for _, k := range g.diskKeys(g.conf) {
			if strings.HasPrefix(k, "unused") {
				continue
			}
			in, why := 1, "enabled"
			if isCDROM(g.conf[k]) {
				in, why = 0, "CD-ROM is excluded"
			} else if k == "rootfs" {
				why = "rootfs"
			} else if option(g.conf[k], "backup") == "0" || strings.HasPrefix(k, "mp") && option(g.conf[k], "backup") != "1" {
				in, why = 0, "disabled"
			}
			name := volumeOf(g.conf[k])
			if name == "" {
				name, _, _ = strings.Cut(g.conf[k], ",")
			}
			vols = append(vols, M{"id": k, "included": in, "leaf": 1, "name": name, "reason": why})
		}
		kids = append(kids, M{"id": id, "type": g.kind, "name": g.name(), "leaf": 0, "children": vols})
	}
	return M{"children": kids, "leaf": 0, "not_all_permissions": 0}, nil
}

func scheduleAnalyze(c *call) (any, error) {
	cal, ok := parseCalendar(c.str("schedule"))
	if !ok {
		return nil, bad("schedule", "unable to parse calendar event")
	}
	at := c.s.now
	if c.has("starttime") {
		at = time.Unix(int64(c.num("starttime")), 0)
	}
	out := []M{}
	for i := 0; i < c.numOr("iterations", 10); i++ {
		if at = cal.next(at); at.IsZero() {
			break
		}
		out = append(out, M{"timestamp": at.Unix(), "utc": at.UTC().Format("Mon Jan _2 15:04:05 2006")})
	}
	return out, nil
}

// Replication jobs.

func listRepl(c *call) (any, error) {
	out := []M{}
	for _, id := range sortedKeys(c.s.repl) {
		r := c.s.repl[id]
		if c.can(fmt.Sprintf("/vms/%v", r["guest"]), "VM.Audit") {
			m := copyM(r)
			m["id"] = id
			out = append(out, m)
		}
	}
	return out, nil
}

func getRepl(c *call) (any, error) {
	r := c.s.repl[c.str("id")]
	if err := c.need("/vms/"+strings.SplitN(c.str("id"), "-", 2)[0], "VM.Audit"); err != nil {
		return nil, err
	}
	if r == nil {
		return nil, die("no such replication job '%s'", c.str("id"))
	}
	m := copyM(r)
	m["id"], m["digest"] = c.str("id"), digestMap(r)
	return m, nil
}

func createRepl(c *call) (any, error) {
	id := c.str("id")
	vm, num, _ := strings.Cut(id, "-")
	if err := c.need("/vms/"+vm, "VM.Replicate"); err != nil {
		return nil, err
	}
	if c.s.repl[id] != nil {
		return nil, die("replication job '%s' already exists", id)
	}
	g := c.s.guests[atoi(vm)]
	if g == nil {
		return nil, die("guest '%s' does not exist", vm)
	}
	target := c.str("target")
	if g.node == target {
		return nil, die("source and target are identical")
	}
	if c.s.node(target) == nil {
		return nil, die("unknown target node '%s'", target)
	}
	for _, k := range g.diskKeys(g.conf) {
		vol := volumeOf(g.conf[k])
		if x := c.s.vol(g.node, vol); x == nil || x.node == "" || isCDROM(g.conf[k]) {
			continue
		}
		if st := c.s.storages[storeOf(vol)]; st.typ() != "zfspool" {
			return nil, die("missing replicate feature on volume '%s'", vol)
		}
	}
	m := M{"type": "local", "guest": atoi(vm), "jobnum": atoi(num), "target": target}
	for k := range c.p {
		if k != "id" {
			m[k] = c.typedParam(k)
		}
	}
	c.s.repl[id] = m
	return nil, nil
}

func updateRepl(c *call) (any, error) {
	id := c.str("id")
	if err := c.need("/vms/"+strings.SplitN(id, "-", 2)[0], "VM.Replicate"); err != nil {
		return nil, err
	}
	r := c.s.repl[id]
	if r == nil {
		return nil, die("no such replication job '%s'", id)
	}
	if d := c.str("digest"); d != "" && d != digestMap(r) {
		return nil, die(msgModified)
	}
	for _, k := range splitList(c.str("delete")) {
		delete(r, k)
	}
	for k := range c.p {
		if k != "id" && k != "digest" && k != "delete" {
			r[k] = c.typedParam(k)
		}
	}
	return nil, nil
}

func deleteRepl(c *call) (any, error) {
	id := c.str("id")
	if err := c.need("/vms/"+strings.SplitN(id, "-", 2)[0], "VM.Replicate"); err != nil {
		return nil, err
	}
	if c.s.repl[id] == nil {
		return nil, die("no such replication job '%s'", id)
	}
	delete(c.s.repl, id)
	return nil, nil
}

func nodeRepl(c *call) (any, error) {
	out := []M{}
	for _, id := range sortedKeys(c.s.repl) {
		r := c.s.repl[id]
		vm, _ := r["guest"].(int)
		g := c.s.guests[vm]
		if g == nil || g.node != c.node.name || c.has("guest") && vm != c.num("guest") || !c.can(fmt.Sprintf("/vms/%d", vm), "VM.Audit") {
			continue
		}
		m := copyM(r)
		m["id"], m["vmtype"], m["source"], m["last_sync"], m["last_try"], m["next_sync"], m["fail_count"] = id, g.kind, g.node, 0, 0, c.s.now.Unix(), 0
		out = append(out, m)
	}
	return out, nil
}

// Bulk actions and the node's *all calls.

func (c *call) bulkGuests() []int {
	var out []int
	want := map[int]bool{}
	for _, v := range c.list("vms") {
		for _, x := range splitList(v) {
			want[atoi(x)] = true
		}
	}
	for _, id := range c.s.sortedIDs() {
		g := c.s.guests[id]
		if len(want) > 0 && !want[id] {
			continue
		}
		if strings.HasPrefix(c.op.Path, "/nodes/") && g.node != c.node.name {
			continue
		}
		out = append(out, id)
	}
	sort.Ints(out)
	return out
}

// bulk runs one action over many guests; single failures do not stop it.
func bulk(typ, priv, verb string, act func(c *call, g *guest, t *task) error) handler {
	return func(c *call) (any, error) {
		ids := c.bulkGuests()
		if !c.can("/", priv) {
			for _, id := range ids {
				if err := c.need(fmt.Sprintf("/vms/%d", id), priv); err != nil && len(c.list("vms")) > 0 {
					return nil, err
				}
			}
			if len(c.list("vms")) == 0 {
				return nil, denied("/, " + priv)
			}
		}
		for _, v := range c.list("vms") {
			for _, x := range splitList(v) {
				if c.s.guests[atoi(x)] == nil && strings.HasPrefix(c.op.Path, "/cluster/") {
					return nil, die("unable to find guest '%s'", x)
				}
			}
		}
		return c.quick(typ, "", 1500*time.Millisecond, func(t *task) error {
			var failed []string
			texts := make([]string, len(ids))
			for i, id := range ids {
				texts[i] = fmt.Sprint(id)
			}
			if strings.HasPrefix(typ, "bulk") {
				t.say("%s guests: %s", verb, strings.Join(texts, ", "))
			}
			for _, id := range ids {
				g := c.s.guests[id]
				if g == nil {
					continue
				}
				t.say("%s %s %d", verb, g.word(), id)
				if err := act(c, g, t); err != nil {
					t.warn("500 %s", err)
					failed = append(failed, fmt.Sprint(id))
				}
			}
			if len(failed) > 0 && strings.HasPrefix(typ, "bulk") {
				t.warnings = 0
				return die("Some guests failed to %s: %s", strings.TrimPrefix(typ, "bulk-"), strings.Join(failed, ", "))
			}
			return nil
		}), nil
	}
}

func actStart(c *call, g *guest, t *task) error {
	if g.running {
		return die("%s %d already running", g.word(), g.id)
	}
	if err := g.locked(); err != nil {
		return err
	}
	if err := c.s.startable(g); err != nil {
		return err
	}
	c.s.bootGuest(g)
	return nil
}

func actStop(c *call, g *guest, t *task) error {
	if !g.running {
		return nil
	}
	if err := g.locked(); err != nil {
		return err
	}
	c.s.haltGuest(g)
	return nil
}

func actSuspend(c *call, g *guest, t *task) error {
	if g.kind != kindQemu || !g.running {
		return nil
	}
	g.paused = true
	return nil
}

func actMigrate(c *call, g *guest, t *task) error {
	target := c.str("target")
	if g.node == target {
		return die("already on node '%s'", target)
	}
	if g.running && g.kind == kindLXC {
		return die("can't migrate running container without --online or --restart")
	}
	for _, k := range g.diskKeys(g.conf) {
		if x := c.s.vol(g.node, volumeOf(g.conf[k])); x != nil && x.node != "" {
			c.s.dropVol(x)
			c.s.addVol(target, x)
		}
	}
	g.node = target
	c.s.touch(g)
	return nil
}
