package lab

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"
)

// guest is a VM ("qemu") or container ("lxc").
type guest struct {
	id       int
	kind     string
	node     string
	conf     map[string]string
	pend     map[string]string // set, not yet in force
	pdel     map[string]bool   // to be deleted; true = with force
	seed     map[string]string // of a VM: what its cloud-init image was made of; nil = as it is set
	running  bool
	paused   bool
	started  time.Time
	pid      int
	snaps    []*snapshot
	parent   string // snapshot under "current"
	pub      published
	busy     *task             // the worker that holds the lock file
	live     map[string]string // values that the running process has
	noAgent  bool              // configured, but nothing answers
	shutFail bool              // ignores a shutdown request
	created  time.Time
	rxBytes  int64
}

// published is what the statistics daemon last told the cluster.
type published struct {
	known   bool
	name    string
	running bool
	started time.Time
	cpus    float64
	mem     int64
	disk    int64
}

type snapshot struct {
	name, parent, desc string
	time               int64
	conf               map[string]string
	vmstate            bool
	state              string
}

func (g *guest) word() string {
	if g.kind == "qemu" {
		return "VM"
	}
	return "CT"
}

func (g *guest) template() bool { return g.conf["template"] == "1" }

func (g *guest) name() string {
	k := "name"
	d := fmt.Sprintf("VM %d", g.id)
	if g.kind == "lxc" {
		k, d = "hostname", fmt.Sprintf("CT%d", g.id)
	}
	if v := g.conf[k]; v != "" {
		return v
	}
	return d
}

func (g *guest) dir() string {
	if g.kind == "qemu" {
		return "qemu-server"
	}
	return "lxc"
}

// guestOf finds the guest of the path on the node asked.
func (c *call) guestOf() (*guest, error) {
	kind := "lxc"
	if strings.HasPrefix(c.op.Path, "/nodes/{node}/qemu/") {
		kind = "qemu"
	}
	return c.s.guestOn(c.node.name, kind, c.num("vmid"))
}

func (s *state) guestOn(node, kind string, id int) (*guest, error) {
	g := s.guests[id]
	if g == nil || g.kind != kind || g.node != node {
		dir := kind
		if kind == "qemu" {
			dir = "qemu-server"
		}
		return nil, die("Configuration file 'nodes/%s/%s/%d.conf' does not exist", node, dir, id)
	}
	return g, nil
}

// locked refuses when the configuration carries a lock.
func (g *guest) locked() error {
	if l := g.conf["lock"]; l != "" {
		return die("%s is locked (%s)", g.word(), l)
	}
	return nil
}

// file is the configuration as it lies on disk; its digest is the guest's digest.
func (g *guest) file() string {
	var b strings.Builder
	b.WriteString(fileText(g.conf))
	if g.parent != "" {
		b.WriteString("parent: " + g.parent + "\n")
	}
	if len(g.pend)+len(g.pdel) > 0 {
		if g.kind == "qemu" {
			b.WriteString("[PENDING]\n")
		} else {
			b.WriteString("[pve:pending]\n")
		}
		var del []string
		for k, force := range g.pdel {
			if force {
				k = "!" + k
			}
			del = append(del, k)
		}
		sort.Strings(del)
		if len(del) > 0 {
			b.WriteString("delete: " + strings.Join(del, ",") + "\n")
		}
		section(&b, g.pend, "")
	}
	for _, sn := range g.snaps {
		b.WriteString("[" + sn.name + "]\n" + sn.desc)
		section(&b, sn.conf, "")
		fmt.Fprintf(&b, "parent: %s\nsnaptime: %d\nsnapstate: %s\n", sn.parent, sn.time, sn.state)
	}
	return b.String()
}

// fileText prints keys as they lie in the file: the description first, as comment lines.
func fileText(conf map[string]string) string {
	var b strings.Builder
	if d := strings.TrimSuffix(conf["description"], "\n"); d != "" {
		for _, line := range strings.Split(d, "\n") {
			b.WriteString("#" + line + "\n")
		}
	}
	section(&b, conf, "description")
	return b.String()
}

// keptText is what a description is after its way through the file: empty lines at its end are lost,
// and a VM's loses every blank there.
func keptText(kind, text string) string {
	text = strings.TrimRight(text, "\n")
	if kind == kindQemu {
		text = strings.TrimRight(text, " \t\r\n\f\v")
	}
	return text
}

func section(b *strings.Builder, m map[string]string, skip string) {
	for _, k := range sortedKeys(m) {
		if k != skip {
			b.WriteString(k + ": " + m[k] + "\n")
		}
	}
}

func (g *guest) digest() string { return digestOf(g.file()) }

// checkDigest compares with the digest sent, if one was.
func (g *guest) checkDigest(c *call) error {
	d := c.str("digest")
	if d == "" || d == g.digest() {
		return nil
	}
	if g.kind == "qemu" {
		return die(msgChecksum)
	}
	return die(msgModified)
}

// typed gives a configuration value the type that the API shows.
func (s *state) typed(kind, key, val string) any {
	sch := lookup(s.api.configs[kind], key)
	if sch == nil {
		switch key {
		case "template", "snaptime":
			return number(val)
		}
		return val
	}
	switch sch.Type {
	case "integer", "boolean", "number":
		return number(val)
	}
	return val
}

func number(val string) any {
	if n, err := strconv.ParseInt(val, 10, 64); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(val, 64); err == nil {
		return f
	}
	return val
}

// shown is a configuration as the API gives it.
func (s *state) shown(g *guest, conf map[string]string) M {
	out := make(M, len(conf)+2)
	for k, v := range conf {
		switch k {
		case "cipassword":
			v = "**********"
		case "description":
			if g.kind == "lxc" && !strings.HasSuffix(v, "\n") {
				v += "\n"
			}
		}
		out[k] = s.typed(g.kind, k, v)
	}
	return out
}

func (s *state) merged(g *guest) map[string]string {
	m := make(map[string]string, len(g.conf)+len(g.pend))
	for k, v := range g.conf {
		m[k] = v
	}
	for k, v := range g.pend {
		m[k] = v
	}
	for k := range g.pdel {
		delete(m, k)
	}
	return m
}

// diskKeys are a guest's keys that hold volumes, in order.
func (g *guest) diskKeys(conf map[string]string) []string {
	var out []string
	for k, v := range conf {
		if isDiskKey(g.kind, k) && v != "" {
			out = append(out, k)
		}
	}
	sort.Strings(out)
	return out
}

func isDiskKey(kind, k string) bool {
	base := strings.TrimRight(k, "0123456789")
	if kind == "lxc" {
		return k == "rootfs" || base == "mp" && k != "mp" || base == "unused" && k != "unused"
	}
	switch base {
	case "scsi", "virtio", "sata", "ide", "unused":
		return base != k
	}
	return k == "efidisk0" || k == "tpmstate0"
}

// volumeOf is the volume id of a disk value, "" when it is none (cdrom, bind mount, path).
func volumeOf(val string) string {
	first, _, _ := strings.Cut(val, ",")
	first = strings.TrimPrefix(strings.TrimPrefix(first, "file="), "volume=")
	if first == "none" || first == "cdrom" || strings.HasPrefix(first, "/") || !strings.Contains(first, ":") {
		return ""
	}
	return first
}

func option(val, key string) string {
	for _, p := range strings.Split(val, ",") {
		if v, ok := strings.CutPrefix(p, key+"="); ok {
			return v
		}
	}
	return ""
}

// setOption replaces or adds key=value in a property string.
func setOption(val, key, v string) string {
	parts := strings.Split(val, ",")
	for i, p := range parts {
		if strings.HasPrefix(p, key+"=") {
			parts[i] = key + "=" + v
			return strings.Join(parts, ",")
		}
	}
	return val + "," + key + "=" + v
}

func isCDROM(val string) bool { return option(val, "media") == "cdrom" }

func cloneMap(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}
