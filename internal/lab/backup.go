package lab

import (
	"fmt"
	"path"
	"sort"
	"strings"
	"time"
)

// archive is what a backup holds: enough to make the guest anew.
type archive struct {
	kind  string
	conf  map[string]string
	disks map[string]int64 // size by configuration key
}

const dumpTime = 900 * time.Millisecond

func vzdump(c *call) (any, error) {
	s := c.s
	var ids []int
	for _, v := range splitList(c.str("vmid")) {
		ids = append(ids, atoi(v))
	}
	storeID := firstNonEmpty(c.str("storage"), "")
	if c.has("dumpdir") || c.has("script") || c.has("tmpdir") {
		if !c.user.root() {
			for _, k := range []string{"tmpdir", "dumpdir", "script", "job-id"} {
				if c.has(k) {
					return nil, denied("parameter '" + k + "' is only allowed for root@pam")
				}
			}
		}
	}
	for _, k := range []string{"bwlimit", "performance", "ionice"} {
		if c.has(k) {
			if err := c.need("/", "Sys.Modify"); err != nil {
				return nil, err
			}
		}
	}
	if c.has("pool") {
		if s.pools[c.str("pool")] == nil {
			return nil, denied("pool '" + c.str("pool") + "' does not exist")
		}
		for id, p := range s.guestPool {
			if p == c.str("pool") && s.guests[id] != nil {
				ids = append(ids, id)
			}
		}
	}
	if c.flag("all") {
		skip := map[int]bool{}
		for _, v := range splitList(c.str("exclude")) {
			skip[atoi(v)] = true
		}
		for id := range s.guests {
			if !skip[id] {
				ids = append(ids, id)
			}
		}
	}
	sort.Ints(ids)
	if storeID != "" {
		if err := c.need("/storage/"+storeID, "Datastore.AllocateSpace"); err != nil && s.storages[storeID] != nil {
			return nil, err
		}
	}
	if len(ids) == 0 && !c.flag("all") && !c.has("pool") {
		if c.flag("stop") {
			return nil, nil
		}
		return nil, bad("vmid", "property is missing")
	}
	if storeID == "" {
		storeID = firstNonEmpty(c.vzdumpDefault("storage"), "local")
	}
	if !c.flag("all") && !c.has("pool") {
		for _, id := range ids {
			if err := c.need(fmt.Sprintf("/vms/%d", id), "VM.Backup"); err != nil {
				return nil, err
			}
		}
	}
	if (c.has("prune-backups") || c.has("remove") && c.flag("remove")) && !c.can("/storage/"+storeID, "Datastore.Allocate") && c.has("prune-backups") {
		return nil, denied("/storage/" + storeID + ", Datastore.Allocate")
	}
	st := s.storages[storeID]
	taskID := ""
	if len(ids) == 1 {
		taskID = fmt.Sprint(ids[0])
	}
	t := s.newTask(c.node, "vzdump", taskID, c.user)
	trouble := ""
	switch {
	case st == nil:
		trouble = fmt.Sprintf("storage '%s' does not exist", storeID)
	case st.disabled():
		trouble = fmt.Sprintf("storage '%s' is disabled", storeID)
	case !st.on(c.node.name):
		trouble = fmt.Sprintf("storage '%s' is not available on node '%s'", storeID, c.node.name)
	case !st.holds("backup"):
		trouble = fmt.Sprintf("can't use storage '%s' for backups - wrong content type", storeID)
	case st.dead:
		trouble = fmt.Sprintf("storage '%s' is not online", storeID)
	}
	if trouble != "" {
		s.work(t, 100*time.Millisecond, func() error {
			return die("could not get storage information for '%s': %s", storeID, trouble)
		})
		return t.upid, nil
	}
	w := &dumper{c: c, t: t, st: st, ids: ids, mode: firstNonEmpty(c.str("mode"), c.vzdumpDefault("mode"), "snapshot"), compress: firstNonEmpty(c.str("compress"), "0"), remove: c.flagOr("remove", true)}
	w.begin()
	return t.upid, nil
}

// dumper backs up several guests one after the other.
type dumper struct {
	c        *call
	t        *task
	st       *storage
	ids      []int
	mode     string
	compress string
	remove   bool
	failed   bool
	current  *guest
	target   string // the file being written
}

func (w *dumper) begin() {
	s, node := w.c.s, w.c.node.name
	if holder := s.vzdumpLock[node]; holder != nil && !holder.done {
		w.t.say("INFO: trying to get global lock - waiting...")
		w.t.noTaskLine = true
		w.t.onStop = func() string {
			w.t.say("ERROR: can't acquire lock '/var/run/vzdump.lock' - interrupted by signal")
			return "unexpected status"
		}
		w.wait()
		return
	}
	w.take()
}

func (w *dumper) wait() {
	s, node := w.c.s, w.c.node.name
	tries := 0
	var look func() error
	look = func() error {
		holder := s.vzdumpLock[node]
		if holder == nil || holder.done || tries > 20000 {
			w.t.say("INFO: got global lock")
			w.take()
			return nil
		}
		tries++
		s.work(w.t, time.Second, look)
		return nil
	}
	s.work(w.t, 500*time.Millisecond, look)
}

func (w *dumper) take() {
	s := w.c.s
	s.vzdumpLock[w.c.node.name] = w.t
	w.t.noTaskLine = false
	w.t.onStop = func() string {
		if g := w.current; g != nil {
			delete(g.conf, "lock")
			w.t.say("ERROR: Backup of VM %d failed - %s", g.id, w.killed(g))
			w.t.say("INFO: Failed at %s", s.now.UTC().Format("2006-01-02 15:04:05"))
			w.t.say("INFO: Backup job finished with errors")
		}
		return "job errors"
	}
	cmd := "vzdump"
	for _, id := range w.ids {
		cmd += fmt.Sprintf(" %d", id)
	}
	for _, k := range sortedKeys(w.c.p) {
		if k == "vmid" || k == "quiet" || !w.c.has(k) {
			continue
		}
		v := w.c.str(k)
		if strings.IndexFunc(v, func(r rune) bool {
			return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.,:/@+", r)
		}) >= 0 {
			v = "'" + v + "'"
		}
		cmd += " --" + k + " " + v
	}
	s.work(w.t, 100*time.Millisecond, func() error {
		w.t.say("INFO: starting new backup job: %s", cmd)
		return w.nextGuest(0)
	})
}

func (w *dumper) nextGuest(i int) error {
	s, t := w.c.s, w.t
	for ; i < len(w.ids); i++ {
		g := s.guests[w.ids[i]]
		if g == nil || g.node != w.c.node.name {
			if g == nil || !w.c.flag("all") && !w.c.has("pool") {
				if g == nil {
					t.say("ERROR: Backup of VM %d failed - unable to find VM '%d'", w.ids[i], w.ids[i])
					t.say("INFO: Failed at %s", s.now.UTC().Format("2006-01-02 15:04:05"))
					w.failed = true
				}
			}
			continue
		}
		i := i
		if err := w.refuse(g); err != nil {
			w.fail(g, err)
			continue
		}
		w.announce(g)
		g.conf["lock"] = "backup"
		w.current = g
		start := s.now
		if s.nested && g.kind == kindQemu {
			// The plain emulator of a nested site has no backup extension.
			delete(g.conf, "lock")
			w.current = nil
			w.fail(g, die("VM %d qmp command 'query-backup' failed - The command query-backup has not been found", g.id))
			continue
		}
		stopped := g.running && (w.mode == "stop" || w.mode == "")
		if stopped {
			t.say("INFO: stopping virtual guest")
		}
		v := s.planBackup(w.c.node.name, w.st, g, start, w.compress)
		t.say("%s", s.creatingLine(w.st, v))
		w.target, _, _ = strings.Cut(s.pathOf(v.id), ".")
		w.target += ".dat"
		s.work(t, w.duration(g), func() error {
			delete(g.conf, "lock")
			w.current = nil
			s.addVol(w.c.node.name, v)
			w.store(g, v, start)
			if stopped || g.kind == kindQemu && !g.running { // it is started: for good, or with its processor off
				_, _ = s.applyPending(g, true, nil)
				g.makeSeed()
				s.touch(g)
			}
			return w.nextGuest(i + 1)
		})
		return nil
	}
	if w.failed {
		t.say("INFO: Backup job finished with errors")
		return die("job errors")
	}
	t.say("INFO: Backup job finished successfully")
	return nil
}

// killed is the complaint of the archiver's pipe when its worker is stopped.
func (w *dumper) killed(g *guest) string {
	if g.kind == kindQemu {
		return "interrupted by signal"
	}
	rate := ""
	if bw := w.c.num("bwlimit"); bw > 0 {
		rate = fmt.Sprintf("| cstream -t %d ", bw*1024)
	}
	return fmt.Sprintf("command 'set -o pipefail && lxc-usernsexec -m u:0:100000:65536 -m g:0:100000:65536 -- tar cpf - --totals --one-file-system -p --sparse --numeric-owner --acls --xattrs '--xattrs-include=user.*' '--xattrs-include=security.capability' '--warning=no-file-ignored' '--warning=no-xattr-write' --one-file-system '--warning=no-file-ignored' '--directory=/var/tmp/vzdumptmp%d_%d' ./etc/vzdump/pct.conf ./etc/vzdump/pct.fw '--directory=/mnt/vzsnap0' --no-anchored '--exclude=lost+found' --anchored '--exclude=./tmp/?*' '--exclude=./var/tmp/?*' '--exclude=./var/run/?*.pid' ./ %s>%s' failed: interrupted by signal",
		w.t.pid, g.id, rate, w.target)
}

// guestData is what there is to copy of a simulated guest, in bytes.
const guestData = 1985039

// throttled is how long a copy takes at a limit in KiB/s.
func throttled(limit int) time.Duration {
	return time.Duration(float64(guestData) / 1024 / float64(limit) * float64(time.Second))
}

// duration grows with the data; a bandwidth limit (KiB/s) slows it down.
func (w *dumper) duration(g *guest) time.Duration {
	d := dumpTime
	if bw := w.c.num("bwlimit"); bw > 0 {
		if slow := throttled(bw); slow > d {
			d = slow
		}
	}
	if d > 10*time.Minute {
		d = 10 * time.Minute
	}
	return d
}

func (w *dumper) fail(g *guest, err error) {
	w.failed = true
	w.t.say("ERROR: Backup of VM %d failed - %s", g.id, strings.TrimSuffix(err.Error(), "\n"))
	w.t.say("INFO: Failed at %s", w.c.s.now.UTC().Format("2006-01-02 15:04:05"))
}

func (w *dumper) refuse(g *guest) error {
	s := w.c.s
	if err := g.locked(); err != nil {
		return err
	}
	if _, err := s.usable(w.st.id, w.c.node.name); err != nil {
		return err
	}
	keep := w.keep()
	if !w.remove && keep["keep-last"] != "" {
		max := atoi(keep["keep-last"])
		n := 0
		for _, v := range s.backupsOf(w.c.node.name, w.st.id, g.id) {
			if !v.protected {
				n++
			}
		}
		if n >= max {
			return die("There is a max backup limit of %d enforced by the target storage or the vzdump parameters. Either increase the limit or delete old backups.", max)
		}
	}
	return nil
}

// keep is the retention in force: the call's before the storage's, and that before the node's.
func (w *dumper) keep() map[string]string {
	return parseKeep(firstNonEmpty(w.c.str("prune-backups"), w.st.text("prune-backups"), w.c.vzdumpDefault("prune-backups")))
}

// vzdumpDefault is what the node's vzdump.conf has.
func (c *call) vzdumpDefault(key string) string {
	text, _ := c.s.vzdumpConf[c.node.name][key].(string)
	return text
}

// announce is what the log says before a guest's data are read.
func (w *dumper) announce(g *guest) {
	t := w.t
	kind, name := "qemu", "VM Name"
	if g.kind == kindLXC {
		kind, name = "lxc", "CT Name"
	}
	mode, status := "stop", "stopped"
	if g.running {
		mode, status = w.mode, "running"
	}
	if w.c.s.nested {
		t.say("INFO: filesystem type on dumpdir is 'overlay' -using /var/tmp/vzdumptmp%d_%d for temporary files", t.pid, g.id)
	}
	t.say("INFO: Starting Backup of VM %d (%s)", g.id, kind)
	t.say("INFO: Backup started at %s", w.c.s.now.UTC().Format("2006-01-02 15:04:05"))
	t.say("INFO: status = %s", status)
	if g.kind == kindQemu {
		t.say("INFO: %s: %s", name, g.name())
		for _, k := range g.diskKeys(g.conf) {
			if vol := volumeOf(g.conf[k]); vol != "" && !isCDROM(g.conf[k]) && !strings.HasPrefix(k, "unused") {
				t.say("INFO: include disk '%s' '%s' %s", k, vol, option(g.conf[k], "size"))
			}
		}
	}
	said := func() {
		t.say("INFO: backup mode: %s", mode)
	}
	if mode == "snapshot" && g.kind == kindLXC && !w.c.s.canSnapshot(g) {
		t.say("INFO: mode failure - some volumes do not support snapshots")
		t.say("INFO: trying 'suspend' mode instead")
		mode = "suspend"
	}
	said()
	if bw := w.c.num("bwlimit"); bw > 0 {
		t.say("INFO: bandwidth limit: %d KiB/s", bw)
	}
	t.say("INFO: ionice priority: 7")
	if g.kind == kindLXC {
		t.say("INFO: %s: %s", name, g.name())
		t.say("INFO: including mount point rootfs ('/') in backup")
		for _, k := range g.diskKeys(g.conf) {
			if mp := option(g.conf[k], "mp"); mp != "" {
				if option(g.conf[k], "backup") == "1" {
					t.say("INFO: including mount point %s ('%s') in backup", k, mp)
				} else {
					t.say("INFO: excluding volume mount point %s ('%s') from backup (disabled)", k, mp)
				}
			}
		}
	}
}

func (w *dumper) store(g *guest, v *volume, start time.Time) {
	s, t := w.c.s, w.t
	v.protected = w.c.flag("protected")
	if n := w.c.str("notes-template"); n != "" {
		v.notes = strings.NewReplacer("{{guestname}}", g.name(), "{{node}}", g.node, "{{vmid}}", fmt.Sprint(g.id), "{{cluster}}", s.cluster, `\n`, "\n").Replace(n)
	}
	if g.kind == kindLXC {
		t.say("INFO: Total bytes written: 3338240 (3.2MiB, 60MiB/s)")
	} else {
		t.say("INFO: 100%% (1.0 GiB of 1.0 GiB) in 1s, read: 1.0 GiB/s, write: 0 B/s")
		t.say("INFO: backup is sparse: 1.00 GiB (100%%) total zero data")
		t.say("INFO: transferred 1.00 GiB in 1 seconds (1.0 GiB/s)")
	}
	t.say("INFO: archive file size: %dMB", v.size>>20)
	if v.notes != "" {
		t.say("INFO: adding notes to backup")
	}
	if v.protected {
		t.say("INFO: marking backup as protected")
	}
	if g.running && w.mode == "stop" {
		t.say("INFO: restarting vm")
		t.say("INFO: guest is online again after 2 seconds")
	}
	if keep := w.keep(); w.remove && len(keep) > 0 && keep["keep-all"] != "1" {
		t.say("INFO: prune older backups with retention: %s", keepText(keep))
		n := 0
		for _, x := range s.pruneMarks(s.backupsOf(w.c.node.name, w.st.id, g.id), keep) {
			if x.mark == "remove" {
				t.say("INFO: removing backup '%s'", x.v.id)
				s.dropVol(x.v)
				n++
			}
		}
		if n > 0 {
			t.say("INFO: pruned %d backup(s) not covered by keep-retention policy", n)
		} else {
			t.say("INFO: pruned 0 backup(s)")
		}
	}
	t.say("INFO: Finished Backup of VM %d (%s)", g.id, clockText(s.now.Sub(start)))
	t.say("INFO: Backup finished at %s", s.now.UTC().Format("2006-01-02 15:04:05"))
}

func clockText(d time.Duration) string {
	n := int(d / time.Second)
	return fmt.Sprintf("%02d:%02d:%02d", n/3600, n/60%60, n%60)
}

// creatingLine is what the log says before an archive is written; of a backup server it names the snapshot alone.
func (s *state) creatingLine(st *storage, v *volume) string {
	if st.typ() == "pbs" {
		return "INFO: creating Proxmox Backup Server archive '" + strings.TrimPrefix(volName(v.id), "backup/") + "'"
	}
	return "INFO: creating vzdump archive '" + s.pathOf(v.id) + "'"
}

// newBackup puts an archive of a guest's present configuration on a storage.
func (s *state) newBackup(node string, st *storage, g *guest, at time.Time, compress string) *volume {
	return s.addVol(node, s.planBackup(node, st, g, at, compress))
}

// planBackup names and fills an archive without storing it.
func (s *state) planBackup(node string, st *storage, g *guest, at time.Time, compress string) *volume {
	a := &archive{kind: g.kind, conf: cloneMap(g.conf), disks: map[string]int64{}}
	delete(a.conf, "lock")
	for k := range a.conf {
		if strings.HasPrefix(k, "unused") {
			delete(a.conf, k)
		}
	}
	for _, k := range g.diskKeys(a.conf) {
		if x := s.vol(g.node, volumeOf(a.conf[k])); x != nil && !isCDROM(a.conf[k]) {
			a.disks[k] = x.size
		}
	}
	v := &volume{content: "backup", size: 1153434, ctime: at, vmid: g.id, subtype: g.kind, archive: a}
	if st.typ() == "pbs" {
		kind := map[string]string{kindQemu: "vm", kindLXC: "ct"}[g.kind]
		v.id = fmt.Sprintf("%s:backup/%s/%d/%s", st.id, kind, g.id, at.UTC().Format("2006-01-02T15:04:05Z"))
		v.format, v.verified = "pbs-"+kind, "ok"
		return v
	}
	stem := map[string]string{kindQemu: "qemu", kindLXC: "lxc"}[g.kind]
	ext := map[string]string{kindQemu: "vma", kindLXC: "tar"}[g.kind]
	switch compress {
	case "zstd":
		ext += ".zst"
	case "gzip", "1":
		ext += ".gz"
	case "lzo":
		ext += ".lzo"
	}
	for {
		v.id = fmt.Sprintf("%s:backup/vzdump-%s-%d-%s.%s", st.id, stem, g.id, at.UTC().Format("2006_01_02-15_04_05"), ext)
		if s.vol(node, v.id) == nil {
			break
		}
		at = at.Add(time.Second)
		v.ctime = at
	}
	v.format = ext
	return v
}

func (s *state) backupsOf(node, store string, vmid int) []*volume {
	var out []*volume
	for _, v := range s.volsOn(node, store) {
		if v.content == "backup" && (vmid == 0 || v.vmid == vmid) {
			out = append(out, v)
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].ctime.After(out[j].ctime) })
	return out
}

// vzdumpDefaults are those of the node's vzdump.conf; retention and folder are those of the storage that is asked for, where it
// has them. Who may not audit the node does not see what concerns the node alone.
func vzdumpDefaults(c *call) (any, error) {
	out := M{"all": 0, "bwlimit": 0, "compress": "0", "exclude-path": []string{}, "fleecing": M{"enabled": 0}, "ionice": 7, "lockwait": 180, "mailnotification": "always", "mode": "snapshot", "notification-mode": "auto",
		"performance": M{"max-workers": 16, "pbs-entries-max": 1048576}, "pbs-change-detection-mode": "legacy", "pigz": 0, "prune-backups": "keep-all=1", "quiet": 0, "remove": 1, "stdexcludes": 1, "stop": 0, "stopwait": 10, "zstd": 1, "tmpdir": path.Clean("/var/tmp")}
	for k, v := range c.s.vzdumpConf[c.node.name] {
		out[k] = v
	}
	if c.has("storage") {
		out["storage"] = c.str("storage")
	}
	if out["dumpdir"] == nil && out["storage"] == nil {
		out["storage"] = "local"
	}
	if id, ok := out["storage"].(string); ok {
		if !c.can("/storage/"+id, "Datastore.Audit") && !c.can("/storage/"+id, "Datastore.AllocateSpace") {
			return nil, denied("/storage/" + id + ", Datastore.Audit|Datastore.AllocateSpace")
		}
		st := c.s.storages[id]
		switch {
		case st == nil:
			return nil, die("storage '%s' does not exist", id)
		case !st.holds("backup"):
			return nil, die("can't use storage '%s' for backups - wrong content type", id)
		}
		if p := st.text("path"); p != "" {
			out["dumpdir"] = p + "/dump"
		}
		if keep := st.text("prune-backups"); keep != "" {
			out["prune-backups"] = keep
		}
	}
	if !c.can("/nodes/"+c.node.name, "Sys.Audit") {
		for _, k := range []string{"mailto", "tmpdir", "dumpdir", "script", "ionice"} {
			delete(out, k)
		}
	}
	if pool, ok := out["pool"].(string); ok && !c.can("/pool/"+pool, "Pool.Audit") {
		delete(out, "pool")
	}
	return out, nil
}

// SetVzdumpConf writes a node's vzdump.conf, as its root would by hand: names and values as in the file.
func (l *Lab) SetVzdumpConf(node string, settings map[string]string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.s.node(node) == nil {
		return fmt.Errorf("write vzdump.conf of %q: no such node", node)
	}
	conf := M{}
	for k, v := range settings {
		conf[k] = v
	}
	l.s.vzdumpConf[node] = conf
	return nil
}
