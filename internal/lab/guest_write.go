package lab

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"castellan/internal/catalog/facts"
	"castellan/internal/regex"
)

var newDisk = &regex.Lazy{Expr: `^([^/:\s]+):(\d+(?:\.\d+)?)$`}

// change is a parsed configuration change.
type change struct {
	set    map[string]string
	del    []string
	revert []string
	force  bool
}

// readChange takes what is to be changed out of the parameters.
func (c *call) readChange(kind string) (*change, error) {
	ch := &change{set: map[string]string{}, force: c.flag("force")}
	skip := map[string]bool{"node": true, "vmid": true, "digest": true, "delete": true, "revert": true, "force": true, "skiplock": true, "background_delay": true, "import-working-storage": true}
	for k, v := range c.p {
		if skip[k] {
			continue
		}
		switch t := v.(type) {
		case string:
			ch.set[k] = t
		case []string:
			ch.set[k] = strings.Join(t, ",")
		case null:
			ch.set[k] = " "
		}
	}
	if c.flag("skiplock") && !c.user.root() {
		return nil, bad("skiplock", "Only root may use this option.")
	}
	if v, ok := ch.set["cdrom"]; ok && kind == kindQemu { // an old name of the CD drive
		delete(ch.set, "cdrom")
		ch.set["ide2"] = setOption(v, "media", "cdrom")
	}
	ch.del, ch.revert = splitList(c.str("delete")), splitList(c.str("revert"))
	if len(ch.set)+len(ch.del)+len(ch.revert) == 0 {
		return nil, die("no options specified")
	}
	for i, k := range ch.del {
		if kind == kindQemu && k == "cdrom" {
			k, ch.del[i] = "ide2", "ide2"
		}
		if _, both := ch.set[k]; both {
			return nil, bad("delete", "you can't use '-%s' and -delete %s' at the same time", k, k)
		}
		if contains(ch.revert, k) {
			return nil, bad("delete", "you can't use '-delete' and -revert %s' at the same time", k)
		}
		if lookup(c.s.api.configs[kind], k) == nil && !(kind == kindLXC && strings.HasPrefix(k, "lxc.")) || notAnOption[k] {
			return nil, bad("delete", "unknown option '%s'", k)
		}
	}
	for _, k := range ch.revert {
		if lookup(c.s.api.configs[kind], k) == nil || notAnOption[k] {
			return nil, bad("revert", "unknown option '%s'", k)
		}
		if _, both := ch.set[k]; both {
			return nil, bad("delete", "you can't use '-%s' and -revert %s' at the same time", k, k)
		}
	}
	return ch, nil
}

// notAnOption are parameters of the call that are no keys of the file.
var notAnOption = map[string]bool{"node": true, "vmid": true, "digest": true, "delete": true, "revert": true, "force": true, "skiplock": true, "background_delay": true, "import-working-storage": true}

// normalize gives values the form in which they are stored.
func (c *call) normalize(kind string, vmid int, set map[string]string) error {
	for k, v := range set {
		sch := lookup(c.s.api.configs[kind], k)
		base := strings.TrimRight(k, "0123456789")
		switch {
		case k == "tags":
			set[k] = c.s.uniqueTags(v)
		case k == "sshkeys":
			plain, err := url.PathUnescape(v)
			if err != nil || !validSSHKeys(plain) {
				return die("SSH public key validation error")
			}
		case k == "vmgenid" && v == "1":
			set[k] = newUUID()
		case base == "net" && base != k:
			set[k] = normalizeNet(kind, v)
		case isDiskKey(kind, k) && sch != nil && sch.Format != nil && base != "unused":
			set[k] = c.s.reorder(sch.Format, v)
		case k == "description":
			set[k] = keptText(kind, v) // an empty one takes the description away
		}
	}
	return nil
}

var sshKey = &regex.Lazy{Expr: `^(?:(?:[\w-]+(?:="[^"]*")?,?)+\s+)?(ssh-(rsa|dss|ed25519)|ecdsa-sha2-nistp(256|384|521)|sk-\S+)\s+[A-Za-z0-9+/]{40,}={0,3}(\s.*)?$`}

func validSSHKeys(text string) bool {
	any := false
	for _, line := range strings.Split(strings.ReplaceAll(text, "\r", ""), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if !sshKey.MatchString(line) {
			return false
		}
		any = true
	}
	return any
}

var macForm = &regex.Lazy{Expr: `^(?i)([a-f0-9]{2}:){5}[a-f0-9]{2}$`}

// normalizeNet fills in the address and sorts the keys after the first element.
func normalizeNet(kind, v string) string {
	m := map[string]string{}
	model, mac := "", ""
	for _, p := range strings.Split(v, ",") {
		if strings.TrimSpace(p) == "" {
			continue
		}
		k, val, has := strings.Cut(p, "=")
		switch {
		case kind == kindLXC:
			m[k] = val
		case k == "model":
			model = val
		case k == "macaddr":
			mac = val
		case !has:
			model = k
		case macForm.MatchString(val) && k != "bridge":
			model, mac = k, val
		default:
			m[k] = val
		}
	}
	first := ""
	if kind == kindLXC {
		if m["hwaddr"] == "" {
			m["hwaddr"] = newMAC()
		}
		m["hwaddr"] = strings.ToUpper(m["hwaddr"])
		if m["type"] == "" {
			m["type"] = "veth"
		}
		first = "name=" + m["name"]
		delete(m, "name")
	} else {
		if mac == "" {
			mac = newMAC()
		}
		first = model + "=" + strings.ToUpper(mac)
	}
	for _, k := range sortedKeys(m) {
		first += "," + k + "=" + m[k]
	}
	return first
}

// reorder prints a property string as the genuine code does: the nameless key, required keys, the others.
func (s *state) reorder(f *facts.Format, v string) string {
	props := map[string]*facts.Schema{}
	if f.Schema != nil {
		props = f.Schema.Properties
	} else if p := s.api.formats[f.Name]; p != nil {
		props = p.Properties
	}
	if len(props) == 0 {
		return v
	}
	parsed, msg := s.api.propertyString(props, v, "")
	if msg != "" {
		return v
	}
	out := []string{}
	def := ""
	for k, p := range props {
		if p.DefaultKey {
			def = k
			if p.Alias != "" {
				def = p.Alias
			}
		}
	}
	if val, ok := parsed[def]; ok && def != "" {
		out = append(out, val)
		delete(parsed, def)
	}
	for _, need := range []bool{true, false} {
		for _, k := range sortedKeys(parsed) {
			if p := props[k]; p != nil && p.Optional == !need {
				out = append(out, k+"="+parsed[k])
			}
		}
	}
	return strings.Join(out, ",")
}

// atOnce tells whether a running guest takes a new value of a key without a restart.
func (g *guest) atOnce(key string) bool {
	base := strings.TrimRight(key, "0123456789")
	if g.kind == kindLXC {
		switch base {
		case "hostname", "tags", "description", "onboot", "startup", "protection", "memory", "swap", "cores", "cpulimit", "cpuunits", "nameserver", "searchdomain", "net", "lock", "hookscript", "unused", "template", "mp":
			return true
		}
		return false
	}
	switch base {
	case "name", "tags", "description", "onboot", "startup", "protection", "lock", "hookscript", "vmstatestorage", "shares", "migrate_speed", "migrate_downtime", "cpulimit", "cpuunits", "unused", "autostart", "parent":
		return true
	case "net", "scsi", "virtio", "usb":
		return base != key
	case "ide", "sata":
		return base != key
	}
	return false
}

// setGuestConfig is PUT (and POST) of a guest's configuration.
func setGuestConfig(c *call) (any, error) {
	kind := kindLXC
	if strings.Contains(c.op.Path, "/qemu/") {
		kind = kindQemu
	}
	ch, err := c.readChange(kind)
	if err != nil {
		return nil, err
	}
	vmid := c.num("vmid")
	typed, tagged := ch.set["tags"]
	tagged = tagged || contains(ch.del, "tags")
	if err := c.normalize(kind, vmid, ch.set); err != nil {
		return nil, err
	}
	g, missing := c.s.guestOn(c.node.name, kind, vmid)
	old := map[string]string{}
	unpriv := true
	if g != nil {
		old, unpriv = g.conf, g.conf["unprivileged"] == "1"
	}
	if kind == kindLXC && missing != nil {
		return nil, missing
	}
	if err := c.mayConfigure(kind, vmid, old, ch.set, append(append([]string{}, ch.del...), ch.revert...), unpriv, ""); err != nil {
		return nil, err
	}
	if tagged {
		if err := c.mayTag(old["tags"], typed); err != nil {
			return nil, err
		}
	}
	if err := c.mayUseStorage(kind, ch.set, ""); err != nil {
		return nil, err
	}
	if err := c.mayUseBridges(ch.set); err != nil {
		return nil, err
	}
	if missing != nil {
		return nil, missing
	}
	if err := g.checkDigest(c); err != nil {
		return nil, err
	}
	if kind == kindQemu && !c.flag("skiplock") || kind == kindLXC {
		if l := g.conf["lock"]; l != "" && !(contains(ch.del, "lock") && len(ch.set) == 0 && kind == kindQemu) {
			return nil, g.locked()
		}
	}
	if c.s.noQuorum {
		return nil, die("unable to open file '/etc/pve/nodes/%s/%s/%d.conf.tmp.%d' - Permission denied", g.node, g.dir(), g.id, c.s.pid)
	}
	if g.busy != nil && !g.busy.done {
		f := die("can't lock file '%s' - got timeout", g.lockFile())
		f.delay = 10 * time.Second
		return nil, f
	}
	if kind == kindQemu && c.op.Method == "POST" {
		return c.quick("qmconfig", fmt.Sprint(g.id), 100*time.Millisecond, func(t *task) error {
			_, err := c.applyChange(g, ch, t)
			return err
		}), nil
	}
	delay, err := c.applyChange(g, ch, nil)
	if f, ok := err.(*failure); ok && delay > 0 {
		f.delay = delay
	}
	if err != nil {
		return nil, err
	}
	return &result{delay: delay}, nil
}

func (g *guest) lockFile() string {
	if g.kind == kindQemu {
		return fmt.Sprintf("/var/lock/qemu-server/lock-%d.conf", g.id)
	}
	return fmt.Sprintf("/run/lock/lxc/pve-config-%d.lock", g.id)
}

// applyChange stores a change: into the pending section first, then whatever can be had at once into force.
func (c *call) applyChange(g *guest, ch *change, t *task) (time.Duration, error) {
	s := c.s
	if g.kind == kindLXC {
		for _, k := range ch.del {
			if k == "memory" || k == "rootfs" {
				return 0, die("unable to delete required option '%s'", k)
			}
			if k == "unprivileged" || k == "ostype" || k == "arch" {
				return 0, die("unable to delete read-only option: '%s'", k)
			}
		}
		for k := range ch.set {
			if k == "unprivileged" {
				return 0, die("unable to modify read-only option: '%s'", k)
			}
		}
	}
	for _, k := range ch.del {
		if err := c.checkDetach(g, k, ch.force); err != nil {
			return 0, err
		}
	}
	// Volumes named must exist before anything is stored.
	for _, k := range sortedKeys(ch.set) {
		if err := c.checkVolume(g, k, ch.set[k]); err != nil {
			return 0, err
		}
	}
	if err := g.bootable(ch); err != nil {
		return 0, err
	}
	for _, k := range ch.revert {
		delete(g.pend, k)
		delete(g.pdel, k)
	}
	for _, k := range ch.del {
		delete(g.pend, k)
		if _, set := g.conf[k]; set {
			g.pdel[k] = ch.force
		}
		if isDiskKey(g.kind, k) || strings.HasPrefix(k, "net") {
			g.dropBoot(k)
		}
	}
	for _, k := range sortedKeys(ch.set) {
		v := ch.set[k]
		delete(g.pdel, k)
		if g.conf[k] == v && k != "description" {
			delete(g.pend, k)
			continue
		}
		if isDiskKey(g.kind, k) && !strings.HasPrefix(k, "unused") {
			made, err := c.makeDisk(g, k, v)
			if err != nil {
				return 0, err
			}
			v = made
		}
		g.pend[k] = v
	}
	now := map[string]bool{"boot": true}
	for _, k := range ch.del {
		now[k] = true
	}
	for k := range ch.set {
		now[k] = true
	}
	delay, err := s.applyPending(g, !g.running, now)
	s.touch(g)
	return delay, err
}

// bootable refuses a boot order that names a device which is not there.
func (g *guest) bootable(ch *change) error {
	for _, dev := range strings.FieldsFunc(option(ch.set["boot"], "order"), func(r rune) bool { return r == ';' }) {
		_, now := g.conf[dev]
		_, next := g.pend[dev]
		_, set := ch.set[dev]
		if !now && !next && !set || contains(ch.del, dev) {
			return die("invalid bootorder: device '%s' does not exist'", dev)
		}
	}
	return nil
}

// dropBoot takes a device out of the boot order.
func (g *guest) dropBoot(dev string) {
	if g.kind != kindQemu {
		return
	}
	now, ok := g.pend["boot"]
	if !ok {
		now = g.conf["boot"]
	}
	order := option(now, "order")
	if order == "" {
		return
	}
	var keep []string
	found := false
	for _, d := range strings.Split(order, ";") {
		if d == dev {
			found = true
			continue
		}
		keep = append(keep, d)
	}
	if !found {
		return
	}
	if len(keep) == 0 {
		g.pend["boot"] = " "
		return
	}
	g.pend["boot"] = "order=" + strings.Join(keep, ";")
}

const unplugTime = 6 * time.Second

// applyPending puts pending values into force: all of them for a stopped guest, else those that hotplug allows.
func (s *state) applyPending(g *guest, all bool, only map[string]bool) (time.Duration, error) {
	delay := time.Duration(0)
	errs := map[string]string{}
	for _, k := range sortedKeys(g.pdel) {
		if !all && (!g.atOnce(k) || !only[k]) {
			continue
		}
		base := strings.TrimRight(k, "0123456789")
		if !all && g.kind == kindQemu && base != k && (base == "net" || base == "scsi" || base == "virtio") {
			if g.conf["os"] == "" && !g.guestOS() {
				delay = unplugTime
				errs[k] = fmt.Sprintf("hotplug problem - error on hot-unplugging device '%s' - still busy in guest?\n", k)
				continue
			}
		}
		if !all && g.kind == kindQemu && (base == "ide" || base == "sata") && base != k {
			continue
		}
		force := g.pdel[k]
		delete(g.pdel, k)
		s.removeKey(g, k, force)
	}
	for _, k := range sortedKeys(g.pend) {
		v := g.pend[k]
		if !all && (!g.atOnce(k) || !only[k]) {
			continue
		}
		base := strings.TrimRight(k, "0123456789")
		if !all && g.kind == kindQemu && (base == "ide" || base == "sata") && base != k && !isCDROM(v) {
			continue
		}
		delete(g.pend, k)
		s.putKey(g, k, v)
	}
	if len(errs) > 0 {
		return delay, &failure{code: 400, msg: verificationFailed, errors: errs}
	}
	return delay, nil
}

// guestOS tells whether something runs inside that answers requests.
func (g *guest) guestOS() bool { return !g.shutFail }

// putKey stores a value; a disk that it replaces becomes unused.
func (s *state) putKey(g *guest, k, v string) {
	if isDiskKey(g.kind, k) && !strings.HasPrefix(k, "unused") {
		vol := volumeOf(v)
		if old := volumeOf(g.conf[k]); old != "" && old != vol && !isCDROM(g.conf[k]) {
			s.addUnused(g, old)
		}
		for _, u := range g.diskKeys(g.conf) {
			if strings.HasPrefix(u, "unused") && volumeOf(g.conf[u]) == vol {
				delete(g.conf, u)
			}
		}
	}
	if k == "description" && v == "" {
		delete(g.conf, k)
		return
	}
	if k == "template" && v == "0" {
		delete(g.conf, k)
		return
	}
	g.conf[k] = v
	if g.live != nil && g.atOnce(k) {
		g.live[k] = v
	}
}

// removeKey deletes a key: a disk is detached, an unused one destroyed.
func (s *state) removeKey(g *guest, k string, force bool) {
	v := g.conf[k]
	delete(g.conf, k)
	if g.live != nil {
		delete(g.live, k)
	}
	vol := volumeOf(v)
	if !isDiskKey(g.kind, k) || vol == "" || isCDROM(v) {
		return
	}
	if strings.HasPrefix(k, "unused") || force {
		if x := s.vol(g.node, vol); x != nil && x.vmid == g.id {
			s.dropVol(x)
		}
		return
	}
	s.addUnused(g, vol)
}

func (s *state) addUnused(g *guest, vol string) {
	if x := s.vol(g.node, vol); x == nil || x.vmid != g.id {
		return
	}
	for _, k := range g.diskKeys(g.conf) {
		if volumeOf(g.conf[k]) == vol {
			return
		}
	}
	for i := 0; i < 256; i++ {
		k := fmt.Sprintf("unused%d", i)
		if g.conf[k] == "" {
			g.conf[k] = vol
			return
		}
	}
}
