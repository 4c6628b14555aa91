package pve

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/regex"
)

type createGuestIn struct {
	Kind    string         `json:"kind" enum:"vm,ct"`
	Node    string         `json:"node,omitempty"`
	ID      string         `json:"vmid,omitempty" jsonschema:"default: next free"`
	Name    string         `json:"name,omitempty"`
	Storage string         `json:"storage,omitempty"`
	Disk    string         `json:"disk,omitempty" jsonschema:"e.g. 32G"`
	Image   string         `json:"image,omitempty" jsonschema:"ISO or CT template volid"`
	Set     map[string]any `json:"set,omitempty" jsonschema:"more PVE settings, such as memory, cores, net0"`
	Start   bool           `json:"start,omitempty"`
	Target  string         `json:"target,omitempty"`
}

func createGuest() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "create_guest", Summary: "Create a VM or container. Write; undo: delete_guest", Product: "pve", Effect: gate.EffectChange,
		Kinds: []gate.Kind{gate.KindCreate}, Undo: "delete_guest", Keywords: "new make deploy provision install virtual machine lxc create_vm create_container",
		Toolset: "full", Bounded: true,
	}, planCreate)
}

// notCreated are parameters of the create call that make it something else.
var notCreated = []string{"archive", "restore", "force", "unique", "live-restore", "vmid", "node", "start", "ostemplate"}

func planCreate(ctx context.Context, v gate.View, in createGuestIn) (*gate.Draft, error) {
	set, err := settingTexts(in.Set)
	if err != nil {
		return nil, err
	}
	for _, k := range notCreated {
		if _, given := set[k]; given {
			return nil, gate.Fail(gate.ErrInvalid, "Use the arguments node, vmid, image and start; to restore an archive use call_operation.", "%s is not taken in set", k)
		}
	}
	if in.Name != "" && (!dnsName.MatchString(in.Name) || len(in.Name) > 253) {
		return nil, gate.Fail(gate.ErrInvalid, "Use letters, digits, - and dots.", "%q is no DNS name", clip(in.Name, 60))
	}
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	node, err := s.pickNode(in.Node)
	if err != nil {
		return nil, err
	}
	if err := s.mayNotSet(in.Kind, set); err != nil {
		return nil, err
	}
	id, free, err := s.freeID(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	for k, val := range set {
		if set[k], err = newDisk(k, val); err != nil {
			return nil, err
		}
	}
	c := &creation{site: s, in: in, node: node, id: id, set: set}
	if in.Kind == estate.VM {
		err = c.vm(ctx)
	} else {
		err = c.ct(ctx)
	}
	if err != nil {
		return nil, err
	}
	return c.draft(free)
}

func (s *site) pickNode(name string) (string, error) {
	online := s.inv.Online()
	if name == "" {
		if len(online) == 1 {
			return online[0], nil
		}
		return "", gate.Fail(gate.ErrInvalid, "Give node, one of: "+strings.Join(online, ", "), "there are %d nodes online", len(online))
	}
	n, err := s.inv.Node(name)
	if err != nil {
		return "", err
	}
	if n.Status != "online" {
		return "", gate.Fail(gate.ErrUnavailable, "Choose a node that is online: "+strings.Join(online, ", "), "node %s is %s", n.Name, n.Status)
	}
	return n.Name, nil
}

type creation struct {
	*site
	in       createGuestIn
	node, id string
	set      map[string]string
	notes    []string
}

// unlessSet takes a value that the caller's own settings go before.
func (c *creation) unlessSet(key, value string) bool {
	if _, given := c.set[key]; given {
		return false
	}
	c.set[key] = value
	return true
}

func (c *creation) hasDisk() bool {
	for k, v := range c.set {
		if b, disk := diskKey(k); disk && b != "unused" && b != "efidisk" && b != "tpmstate" && !strings.Contains(v, "media=cdrom") {
			return true
		}
	}
	return false
}

func (c *creation) vm(ctx context.Context) error {
	if c.in.Name != "" {
		c.unlessSet("name", c.in.Name)
	}
	switch {
	case c.in.Disk != "":
		disk, err := c.newVolume(ctx, "images")
		if err != nil {
			return err
		}
		if !c.unlessSet("scsi0", disk) {
			return gate.Fail(gate.ErrInvalid, "Leave one of both out.", "the disk is given twice: as disk and as scsi0")
		}
		c.unlessSet("scsihw", "virtio-scsi-single")
	case c.in.Storage != "":
		return gate.Fail(gate.ErrInvalid, "Give disk, such as 32G, or leave storage out.", "storage is given without a disk")
	case !c.hasDisk():
		c.notes = append(c.notes, "It has no disk.")
	}
	if c.in.Image != "" {
		if !strings.Contains(c.in.Image, ":iso/") {
			return gate.Fail(gate.ErrInvalid, "Give a volume such as local:iso/debian.iso; call_operation with GET /nodes/{node}/storage/{storage}/content lists them.", "%q is no ISO volume", clip(c.in.Image, 80))
		}
		if !c.unlessSet("ide2", c.in.Image+",media=cdrom") {
			return gate.Fail(gate.ErrInvalid, "Leave one of both out.", "the image is given twice: as image and as ide2")
		}
	}
	if _, given := c.set["memory"]; !given {
		c.notes = append(c.notes, "Memory is the server's default of 512 MiB.")
	}
	if !slices.ContainsFunc(slices.Collect(maps.Keys(c.set)), func(k string) bool { return base(k) == "net" }) {
		c.notes = append(c.notes, "It has no network card; set net0, such as virtio,bridge=vmbr0.")
	}
	return nil
}

func (c *creation) ct(ctx context.Context) error {
	if c.in.Image == "" {
		return gate.Fail(gate.ErrInvalid, "Give a volume such as local:vztmpl/debian-13-standard.tar.zst; call_operation with GET /nodes/{node}/storage/{storage}/content lists them.", "a container needs an image")
	}
	if !strings.Contains(c.in.Image, ":vztmpl/") {
		return gate.Fail(gate.ErrInvalid, "Give a volume such as local:vztmpl/debian-13-standard.tar.zst.", "%q is no container template volume", clip(c.in.Image, 80))
	}
	c.set["ostemplate"] = c.in.Image
	if c.in.Name != "" {
		c.unlessSet("hostname", c.in.Name)
	}
	if _, given := c.set["rootfs"]; !given {
		if c.in.Disk == "" {
			c.in.Disk = "8G"
			c.notes = append(c.notes, "The root disk has 8 GiB since no disk was given.")
		}
		disk, err := c.newVolume(ctx, "rootdir")
		if err != nil {
			return err
		}
		c.set["rootfs"] = disk
	} else if c.in.Disk != "" {
		return gate.Fail(gate.ErrInvalid, "Leave one of both out.", "the disk is given twice: as disk and as rootfs")
	}
	if c.unlessSet("unprivileged", "1") {
		c.notes = append(c.notes, "It is unprivileged.")
	}
	if _, given := c.set["net0"]; !given {
		c.notes = append(c.notes, "It has no network card; set net0, such as name=eth0,bridge=vmbr0,ip=dhcp.")
	}
	return nil
}

// newVolume writes disk and storage in the form that creating takes: storage:GiB.
func (c *creation) newVolume(ctx context.Context, kind string) (string, error) {
	size, err := gibibytes(c.in.Disk)
	if err != nil {
		return "", err
	}
	storage, err := c.pickStorage(ctx, c.in.Storage, c.node, kind)
	if err != nil {
		return "", err
	}
	return storage + ":" + size, nil
}

var diskSize = &regex.Lazy{Expr: `^\+?([1-9][0-9]{0,6})([GgTt])?(?:[iI]?[bB])?$`}

// gibibytes writes a size as whole GiB, the form of new disks.
func gibibytes(s string) (string, error) {
	m := diskSize.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil || strings.HasPrefix(strings.TrimSpace(s), "+") {
		return "", gate.Fail(gate.ErrInvalid, "Give whole GiB, as 32G or 32, or TiB, as 2T.", "%q is no size for a new disk", clip(s, 40))
	}
	if strings.EqualFold(m[2], "T") {
		var n int
		if _, err := fmt.Sscanf(m[1], "%d", &n); err != nil || n > 1000 {
			return "", gate.Fail(gate.ErrInvalid, "Give a smaller size.", "%q is too large for a new disk", clip(s, 40))
		}
		return fmt.Sprint(n * 1024), nil
	}
	return m[1], nil
}

var newVolumeForm = &regex.Lazy{Expr: `^([A-Za-z][A-Za-z0-9._-]*):([0-9]+[A-Za-z]+)(,.*)?$`}

// newDisk puts right the size of a new disk within a setting: the server takes storage:32 and chokes on storage:32G.
func newDisk(key, value string) (string, error) {
	if _, disk := diskKey(key); !disk {
		return value, nil
	}
	m := newVolumeForm.FindStringSubmatch(value)
	if m == nil {
		return value, nil
	}
	size, err := gibibytes(m[2])
	if err != nil {
		return "", err
	}
	return m[1] + ":" + size + m[3], nil
}

func (c *creation) draft(free gate.Condition) (*gate.Draft, error) {
	path := map[string]string{estate.VM: "qemu", estate.CT: "lxc"}[c.in.Kind]
	params := map[string]any{"node": c.node, "vmid": c.id}
	draft := &gate.Draft{Target: c.target(), Phrase: c.id}
	for _, k := range slices.Sorted(maps.Keys(c.set)) {
		params[k] = c.set[k]
		draft.Diff = append(draft.Diff, gate.Difference{Object: "guest/" + c.id, Key: k, New: masked(k, c.set[k])})
	}
	step := gate.Step{Wait: gate.Wait{Kind: gate.WaitTask, Limit: 2 * time.Hour}, Require: []gate.Condition{free}, Verify: madeGuest(path, c.id)}
	if c.in.Start {
		params["start"] = true
		step.Verify = append(step.Verify, gate.Condition{Name: "guest " + c.id + " is running", Rule: gate.RuleEquals, Value: text("running"), Pointer: "/status",
			Read: gate.Read{Operation: "GET /nodes/{node}/" + path + "/{vmid}/status/current", Params: map[string]string{"node": gate.NodeOf(c.id), "vmid": c.id}}})
	}
	r, err := gate.NewRequest("pve", "POST /nodes/{node}/"+path, params)
	if err != nil {
		return nil, err
	}
	step.API = &r
	step.Undo.How = "destroy guest " + c.id
	if step.Undo.Call, err = destroy(path, c.id, c.node); err != nil {
		return nil, err
	}
	draft.Steps = []gate.Step{step}
	draft.Note = strings.Join(append(c.notes, fmt.Sprintf("The id %s is free now; nothing reserves it.", c.id)), " ")
	return draft, nil
}
