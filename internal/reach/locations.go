package reach

import (
	"net/netip"
	"path"
	"slices"
	"strings"

	"castellan/internal/estate"
)

// location is where a storage's contents are.
type location struct {
	kind    string   // what is compared with what
	servers []string // any of them reaches it; none = the node itself, or a name that is one everywhere
	at      string   // where there
	folder  bool     // at is a path, in which others may lie
	own     bool     // the storage is nothing but this folder of a node
}

// locationsOf are the ways in which a storage's contents can be told: over the network, and as a folder of its nodes.
func locationsOf(d estate.Config) (out []location) {
	folder := func(kind, at string, servers ...string) {
		out = append(out, location{kind: kind, servers: names1(servers...), at: path.Clean("/" + at), folder: true, own: d["type"] == "dir" || d["type"] == "btrfs"})
	}
	one := func(kind, at string, servers ...string) {
		out = append(out, location{kind: kind, servers: names1(servers...), at: at})
	}
	mounted := d["path"]
	switch d["type"] {
	case "nfs":
		folder("export", d["export"]+"/"+d["subdir"], d["server"])
	case "cifs":
		folder("share", strings.ToLower(d["share"])+"/"+d["subdir"], d["server"])
	case "cephfs":
		folder("cephfs/"+d["fs-name"], d["subdir"], words(d["monhost"])...)
	case "glusterfs":
		one("gluster", d["volume"], d["server"], d["server2"])
	case "pbs":
		one("pbs", d["datastore"]+"/"+strings.Trim(d["namespace"], "/"), d["server"])
	case "lvm", "lvmthin":
		one("group of volumes", d["vgname"]) // volumes of all its pools have names that are one in it
	case "iscsi", "iscsidirect":
		one("target", d["target"])
	case "zfs":
		one("pool", d["pool"], d["portal"])
	case "rbd":
		pool := d["pool"]
		if pool == "" {
			pool = "rbd"
		}
		one("rbd", pool+"/"+d["namespace"], words(d["monhost"])...)
	case "zfspool":
		one("zpool", d["pool"])
		if mounted = d["mountpoint"]; mounted == "" {
			mounted = "/" + d["pool"]
		}
	}
	if mounted == "" && slices.Contains([]string{"nfs", "cifs", "cephfs", "glusterfs"}, d["type"]) {
		mounted = "/mnt/pve/" + d["storage"]
	}
	if mounted != "" {
		folder("folder", mounted)
	}
	return out
}

// names1 leaves out empty ones and writes each in one way.
func names1(servers ...string) (out []string) {
	for _, s := range servers {
		s = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(s)), ".")
		host := s
		if h, port, ok := strings.Cut(s, ":"); ok && !strings.Contains(port, ":") { // monitors may name a port
			host = h
		}
		if host = strings.Trim(host, "[]"); host == "" {
			continue
		}
		if a, err := netip.ParseAddr(host); err == nil {
			host = a.Unmap().String()
		}
		out = append(out, host)
	}
	return out
}

// sameServer says whether two lists of names or addresses are of one server. What a name stands for is not known here.
func sameServer(a, b []string) answer {
	if len(a) == 0 && len(b) == 0 || slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) }) {
		return yes
	}
	named := func(s string) bool { _, err := netip.ParseAddr(s); return err != nil }
	if len(a) == 0 || len(b) == 0 || slices.ContainsFunc(a, named) || slices.ContainsFunc(b, named) {
		return perhaps
	}
	return no
}

// samePlace says whether two storages show one place, or one of them lies in the other: what is in it is in both then.
func samePlace(a, b estate.Config) (same answer, nested bool) {
	for _, x := range locationsOf(a) {
		for _, y := range locationsOf(b) {
			if x.at == "" || y.at == "" {
				continue
			}
			inside := false
			switch {
			case x.kind == y.kind && x.at == y.at:
			case x.kind == y.kind && x.folder && (within(x.at, y.at) || within(y.at, x.at)):
				if x.kind == "folder" && !together(a, b) {
					continue
				}
				inside = true
			case x.kind == "export" && y.kind == "share" || x.kind == "share" && y.kind == "export":
				// One server may give one folder out in both ways; a share's name does not say which.
				if s := sameServer(x.servers, y.servers); path.Base(x.at) == path.Base(y.at) && s != no && same == no {
					same = perhaps
				}
				continue
			case sameCopied(x, y):
				same, nested = max(same, perhaps), nested || same == no && x.at != y.at
				continue
			default:
				continue
			}
			if s := sameServer(x.servers, y.servers); s > same {
				same, nested = s, inside
			}
		}
	}
	return same, nested
}

// sameCopied says whether a node may itself give out over the network what another storage has as its own: a folder, or a pool.
// Which addresses the node has is not looked at.
func sameCopied(x, y location) bool {
	for _, p := range [][2]location{{x, y}, {y, x}} {
		near, far := p[0], p[1]
		switch {
		case near.kind == "folder" && near.own && far.kind == "export" && (near.at == far.at || within(near.at, far.at) || within(far.at, near.at)):
			return true
		case near.kind == "zpool" && far.kind == "pool" && near.at == far.at:
			return true
		}
	}
	return false
}

func within(inner, outer string) bool {
	return inner != outer && (outer == "/" || strings.HasPrefix(inner, outer+"/"))
}

// together says whether two storages are to be had on one node.
func together(a, b estate.Config) bool {
	if a["nodes"] == "" || b["nodes"] == "" {
		return true
	}
	return slices.ContainsFunc(words(a["nodes"]), func(n string) bool { return slices.Contains(words(b["nodes"]), n) })
}

// twin is another storage that shows the same place, or a part of it.
type twin struct {
	name   string
	nested bool
	sure   bool
}

// twins lists them; of those that are not sure it cannot be told whether they are one place.
func twins(defs []estate.Config, def estate.Config) (out []twin) {
	for _, d := range defs {
		if d["storage"] == def["storage"] || def == nil {
			continue
		}
		if same, nested := samePlace(def, d); same != no {
			out = append(out, twin{d["storage"], nested, same == yes})
		}
	}
	return out
}

// shows says how a twin stands to a storage.
func (t twin) shows(other string) string {
	switch {
	case !t.sure:
		return "may show the same place as " + other + " by another name of its server, which cannot be told"
	case t.nested:
		return "and " + other + " lie one in the other"
	}
	return "shows the same place as " + other
}
