package lab

import (
	"strings"
)

// storageKeys are the options of each storage type: those that must be given, and the others.
func storageKeys(typ string) (required, optional []string) {
	common := []string{"content", "nodes", "disable", "prune-backups", "max-protected-backups", "bwlimit", "preallocation", "snapshot-as-volume-chain"}
	dir := append([]string{"path", "shared", "is_mountpoint", "format", "mkdir", "create-base-path", "create-subdirs", "content-dirs"}, common...)
	switch typ {
	case "dir":
		return []string{"path"}, dir
	case "btrfs":
		return []string{"path"}, append([]string{"is_mountpoint", "shared", "mkdir", "create-base-path", "create-subdirs", "content-dirs", "format"}, common...)
	case "nfs":
		return []string{"server", "export"}, append([]string{"path", "options", "format", "mkdir", "create-base-path", "create-subdirs", "content-dirs"}, common...)
	case "cifs":
		return []string{"server", "share"}, append([]string{"path", "username", "password", "domain", "smbversion", "subdir", "options", "format", "mkdir", "create-base-path", "create-subdirs", "content-dirs"}, common...)
	case "pbs":
		return []string{"server", "datastore"}, append([]string{"namespace", "port", "username", "password", "encryption-key", "master-pubkey", "fingerprint"}, common...)
	case "lvm":
		return []string{"vgname"}, append([]string{"shared", "saferemove", "saferemove_throughput", "saferemove-stepsize", "tagged_only", "base"}, common...)
	case "lvmthin":
		return []string{"vgname", "thinpool"}, common
	case "zfspool":
		return []string{"pool"}, append([]string{"blocksize", "sparse", "mountpoint"}, common...)
	case "rbd":
		return nil, append([]string{"monhost", "pool", "data-pool", "namespace", "username", "krbd", "keyring"}, common...)
	case "cephfs":
		return nil, append([]string{"monhost", "username", "fs-name", "keyring", "path", "subdir", "fuse", "options", "content-dirs"}, common...)
	case "iscsi":
		return []string{"portal", "target"}, common
	case "iscsidirect":
		return []string{"portal", "target"}, common
	case "zfs":
		return []string{"pool", "portal", "target", "iscsiprovider"}, append([]string{"blocksize", "nowritecache", "sparse", "comstar_hg", "comstar_tg", "lio_tpg", "zfs-base-path"}, common...)
	case "esxi":
		return []string{"server"}, append([]string{"username", "password", "skip-cert-verification", "port"}, common...)
	}
	return nil, common
}

// fixedKeys cannot be changed once a storage is there.
var fixedKeys = map[string]bool{"path": true, "server": true, "export": true, "vgname": true, "thinpool": true, "pool": true, "share": true, "datastore": true, "portal": true, "target": true, "type": true}

func (s *state) storageDigest() string {
	var b strings.Builder
	for _, id := range s.storOrder {
		b.WriteString(id + digestMap(s.storages[id].conf))
	}
	return digestOf(b.String())
}

func (s *state) storageShow(st *storage) M {
	m := copyM(st.conf)
	for _, k := range []string{"password", "keyring"} {
		delete(m, k)
	}
	m["storage"], m["digest"] = st.id, s.storageDigest()
	return m
}

func listStorageConf(c *call) (any, error) {
	out := []M{}
	for _, id := range c.s.storOrder {
		st := c.s.storages[id]
		if !c.s.mayAny(c.user.id(), "/storage/"+id, "Datastore.Audit", "Datastore.AllocateSpace") {
			continue
		}
		if t := c.str("type"); t != "" && t != st.typ() {
			continue
		}
		out = append(out, c.s.storageShow(st))
	}
	return out, nil
}

func getStorageConf(c *call) (any, error) {
	st, err := c.storageParam()
	if err != nil {
		return nil, err
	}
	return c.s.storageShow(st), nil
}

func createStorage(c *call) (any, error) {
	id, typ := c.str("storage"), c.str("type")
	req, opt := storageKeys(typ)
	fail := func(format string, args ...any) error {
		return die("create storage failed: "+format, args...)
	}
	conf := M{"type": typ}
	for _, k := range sortedKeys(c.p) {
		if k == "storage" || k == "type" {
			continue
		}
		if !contains(req, k) && !contains(opt, k) {
			return nil, die("unexpected property '%s'", k)
		}
		conf[k] = c.typedParam(k)
	}
	for _, k := range req {
		if !c.has(k) {
			return nil, die("missing value for required option '%s'", k)
		}
	}
	if c.s.storages[id] != nil {
		return nil, fail("storage ID '%s' already defined", id)
	}
	if conf["content"] == nil {
		conf["content"] = defaultContent(typ)
	}
	st := &storage{id: id, conf: conf, total: 270553174016, base: 27097460736}
	c.s.storages[id] = st
	c.s.storOrder = append(c.s.storOrder, id)
	out := M{"storage": id, "type": typ}
	if k := c.str("encryption-key"); k != "" {
		out["config"] = M{"encryption-key": k}
	}
	return out, nil
}

func defaultContent(typ string) string {
	switch typ {
	case "dir", "nfs", "cifs", "btrfs":
		return "images,rootdir,vztmpl,iso,backup,snippets"
	case "pbs":
		return "backup"
	case "cephfs":
		return "vztmpl,iso,backup"
	case "iscsi", "iscsidirect", "zfs":
		return "images"
	case "esxi":
		return "import"
	}
	return "images,rootdir"
}

func updateStorage(c *call) (any, error) {
	id := c.str("storage")
	st := c.s.storages[id]
	if d := c.str("digest"); d != "" && d != c.s.storageDigest() {
		return nil, die("update storage failed: %s", msgModified)
	}
	if st == nil {
		return nil, die("update storage failed: storage '%s' does not exist", id)
	}
	req, opt := storageKeys(st.typ())
	for _, k := range sortedKeys(c.p) {
		switch k {
		case "storage", "digest", "delete":
			continue
		}
		if !contains(req, k) && !contains(opt, k) {
			return nil, die("update storage failed: unexpected property '%s'", k)
		}
		if fixedKeys[k] {
			return nil, die("update storage failed: can't change value of fixed parameter '%s'", k)
		}
	}
	for _, k := range splitList(c.str("delete")) {
		if contains(req, k) || !contains(opt, k) {
			if contains(req, k) {
				return nil, die("update storage failed: unable to delete required option '%s'", k)
			}
			return nil, die("update storage failed: no such option '%s'", k)
		}
		if c.has(k) {
			return nil, die("update storage failed: can't set and delete property '%s' at the same time!", k)
		}
		delete(st.conf, k)
	}
	for k := range c.p {
		if k != "storage" && k != "digest" && k != "delete" {
			st.conf[k] = c.typedParam(k)
		}
	}
	return M{"storage": id, "type": st.typ()}, nil
}

func deleteStorage(c *call) (any, error) {
	id := c.str("storage")
	if c.s.storages[id] == nil {
		return nil, die("delete storage failed: storage '%s' does not exist", id)
	}
	for _, st := range c.s.storages {
		if st.text("base") != "" && storeOf(st.text("base")) == id {
			return nil, die("delete storage failed: can't remove storage '%s' - storage is used as base of another storage", id)
		}
	}
	delete(c.s.storages, id)
	for i, x := range c.s.storOrder {
		if x == id {
			c.s.storOrder = append(c.s.storOrder[:i:i], c.s.storOrder[i+1:]...)
			break
		}
	}
	delete(c.s.acl, "/storage/"+id)
	c.s.rightsChanged()
	return nil, nil
}
