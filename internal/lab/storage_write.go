package lab

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// parseSize reads 32, 32G, 1048576K; without a unit the number counts in units of def bytes.
func parseSize(v string, def int64) int64 {
	if v == "" {
		return 0
	}
	unit := def
	switch v[len(v)-1] {
	case 'K':
		unit = 1 << 10
	case 'M':
		unit = 1 << 20
	case 'G':
		unit = 1 << 30
	case 'T':
		unit = 1 << 40
	}
	f, err := strconv.ParseFloat(strings.TrimRight(v, "KMGT"), 64)
	if err != nil {
		return 0
	}
	return int64(f * float64(unit))
}

func formatSize(n int64) string {
	if n == 0 {
		return "0T"
	}
	for _, u := range []struct {
		unit int64
		name string
	}{{1 << 40, "T"}, {1 << 30, "G"}, {1 << 20, "M"}, {1 << 10, "K"}} {
		if n >= u.unit && n%u.unit == 0 {
			return strconv.FormatInt(n/u.unit, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// allocVolume is POST content: a bare disk.
func allocVolume(c *call) (any, error) {
	st, err := c.s.usable(c.str("storage"), c.node.name)
	if err != nil {
		return nil, err
	}
	name := c.str("filename")
	format := c.str("format")
	if i := strings.LastIndex(name, "."); i >= 0 && contains([]string{"raw", "qcow2", "subvol", "vmdk"}, name[i+1:]) {
		if format != "" && format != name[i+1:] {
			return nil, bad("format", "different storage formats (%s != %s)", format, name[i+1:])
		}
		format = name[i+1:]
	}
	vmid := c.num("vmid")
	if name != "" && !regexp.MustCompile(`^vm-`+strconv.Itoa(vmid)+`-\S+$`).MatchString(name) {
		return nil, die("illegal name '%s' - should be 'vm-%d-*'", name, vmid)
	}
	if format == "" {
		format = "raw"
	}
	id := st.id + ":" + name
	if st.isFile() {
		id = fmt.Sprintf("%s:%d/%s", st.id, vmid, name)
	}
	if c.s.vol(c.node.name, id) != nil {
		return nil, die("disk image '%s' already exists", c.s.pathOf(id))
	}
	c.s.addVol(c.node.name, &volume{id: id, content: "images", format: format, size: parseSize(c.str("size"), 1024), used: 4096, vmid: vmid})
	return id, nil
}

func deleteVolume(c *call) (any, error) {
	v, st, err := c.pathVolume()
	if err != nil {
		return nil, err
	}
	id := c.fullVolid()
	owner := 0
	content := ""
	if v != nil {
		owner, content = v.vmid, v.content
	} else if m := regexp.MustCompile(`^(\d+)/|vzdump-\w+-(\d+)-|-(\d+)-`).FindStringSubmatch(volName(id)); m != nil {
		owner = atoi(m[1] + m[2] + m[3])
	}
	if !c.can("/storage/"+st.id, "Datastore.Allocate") {
		if content == "backup" && owner != 0 {
			if err := c.need("/storage/"+st.id, "Datastore.AllocateSpace"); err != nil {
				return nil, err
			}
			if err := c.need(fmt.Sprintf("/vms/%d", owner), "VM.Backup"); err != nil {
				return nil, err
			}
		} else if err := c.need("/storage/"+st.id, "Datastore.Allocate"); err != nil {
			return nil, err
		}
	}
	name := fmt.Sprintf("%d@%s", owner, st.id)
	if owner == 0 {
		name = "@" + st.id
	}
	dur := 80 * time.Millisecond
	t := c.s.newTask(c.node, "imgdel", name, c.user)
	c.s.work(t, dur, func() error {
		if v == nil || c.s.vol(c.node.name, id) == nil {
			if st.isFile() {
				p := c.s.pathOf(id)
				t.say("disk image '%s' does not exist", p)
				return nil
			}
			return die("no such volume '%s'", id)
		}
		if v.protected {
			return die("cannot remove protected volume '%s' on '%s'", volName(id), st.id)
		}
		if base := c.s.childOf(v); base != "" {
			return die("base volume '%s' is still in use by linked cloned", volName(id))
		}
		c.s.dropVol(v)
		t.say("Removed volume '%s'", id)
		return nil
	})
	if c.has("delay") && time.Duration(c.num("delay"))*time.Second >= dur {
		return &result{data: nil, delay: dur}, nil
	}
	return t.upid, nil
}

// childOf names a volume that is a linked clone of v.
func (s *state) childOf(v *volume) string {
	for _, o := range s.volumes[shelf(v.node, storeOf(v.id))] {
		if o.parent == v.id {
			return o.id
		}
	}
	return ""
}

func updateVolume(c *call) (any, error) {
	v, st, err := c.pathVolume()
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, c.noVolume()
	}
	if v.content == "backup" && !c.can("/storage/"+st.id, "Datastore.Allocate") {
		if err := c.need("/storage/"+st.id, "Datastore.AllocateSpace"); err != nil {
			return nil, err
		}
		if err := c.need(fmt.Sprintf("/vms/%d", v.vmid), "VM.Backup"); err != nil {
			return nil, err
		}
	} else if err := c.need("/storage/"+st.id, "Datastore.Allocate"); err != nil {
		return nil, err
	}
	if c.has("notes") {
		if v.content != "backup" {
			return nil, die("attribute 'notes' is not supported for storage type '%s' and '%s' content", st.typ(), v.content)
		}
		v.notes = c.str("notes")
	}
	if c.has("protected") {
		if v.content != "backup" {
			return nil, die("attribute 'protected' is not supported for storage type '%s' and '%s' content", st.typ(), v.content)
		}
		v.protected = c.flag("protected")
	}
	return nil, nil
}

var uploadNames = map[string]*regexp.Regexp{
	"iso":    regexp.MustCompile(`^[^/]+\.(?i:iso|img)$`),
	"vztmpl": regexp.MustCompile(`^[^/]+\.tar\.(gz|xz|zst|bz2)$`),
	"import": regexp.MustCompile(`^[^/]+\.(ova|qcow2|raw|vmdk)$`),
}

func uploadFile(c *call) (any, error) {
	if c.node != c.local {
		return nil, die("unable to proxy file uploads")
	}
	st, err := c.s.usable(c.str("storage"), c.node.name)
	if err != nil {
		return nil, err
	}
	kind := c.str("content")
	name := regexp.MustCompile(`[^-a-zA-Z0-9_.+=]`).ReplaceAllString(c.str("filename"), "_")
	if !uploadNames[kind].MatchString(name) {
		return nil, bad("filename", "wrong file extension")
	}
	if !st.holds(kind) {
		return nil, die("storage '%s' does not support '%s' content", st.id, kind)
	}
	size := int64(0)
	if c.up != nil {
		size = c.up.size
	}
	tmp := strings.ReplaceAll(newUUID(), "-", "")
	return c.quick("imgcopy", "", 200*time.Millisecond, func(t *task) error {
		t.say("starting file import from: /var/tmp/pveupload-%s", tmp)
		t.say("target node: %s", c.node.name)
		t.say("target file: %s", c.s.pathOf(st.id+":"+kind+"/"+name))
		t.say("file size is: %d", size)
		t.say("command: cp -- /var/tmp/pveupload-%s %s", tmp, c.s.pathOf(st.id+":"+kind+"/"+name))
		c.s.addVol(c.node.name, &volume{id: st.id + ":" + kind + "/" + name, content: kind, format: fileFormat(name), size: size})
		t.say("finished file import successfully")
		return nil
	}), nil
}

func fileFormat(name string) string {
	for suffix, f := range map[string]string{".tar.gz": "tgz", ".tar.xz": "txz", ".tar.zst": "tzst", ".iso": "iso", ".img": "iso", ".qcow2": "qcow2", ".raw": "raw", ".ova": "ova"} {
		if strings.HasSuffix(name, suffix) {
			return f
		}
	}
	return "raw"
}

func downloadURL(c *call) (any, error) {
	st, err := c.s.usable(c.str("storage"), c.node.name)
	if err != nil {
		return nil, err
	}
	kind, name := c.str("content"), c.str("filename")
	if re := uploadNames[kind]; re != nil && !re.MatchString(name) {
		return nil, bad("filename", "wrong file extension")
	}
	if !st.holds(kind) {
		return nil, die("storage '%s' is not configured for content-type '%s'", st.id, kind)
	}
	url := c.str("url")
	return c.quick("download", name, time.Second, func(t *task) error {
		t.say("downloading %s to %s", url, c.s.pathOf(st.id+":"+kind+"/"+name))
		t.say("--%s--  %s", c.s.now.UTC().Format("2006-01-02 15:04:05"), url)
		if strings.Contains(url, "//127.") || strings.Contains(url, "//localhost") || strings.Contains(url, ".invalid") {
			return die("download failed: Connecting to %s... failed: Connection refused.", strings.SplitN(strings.TrimPrefix(strings.TrimPrefix(url, "http://"), "https://"), "/", 2)[0])
		}
		t.say("download of '%s' to '%s' finished", url, c.s.pathOf(st.id+":"+kind+"/"+name))
		c.s.addVol(c.node.name, &volume{id: st.id + ":" + kind + "/" + name, content: kind, format: fileFormat(name), size: 1 << 20})
		return nil
	}), nil
}
