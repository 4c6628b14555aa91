package anchor

import "syscall"

// onNetwork says whether a folder lies on a file system that another machine keeps.
func onNetwork(dir string) bool {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil {
		return false
	}
	switch uint32(s.Type) {
	case 0x6969, // NFS
		0x517b, 0xff534d42, 0xfe534d42, // SMB
		0x00c36400, // Ceph
		0x01021997, // 9p, by which a host gives a folder to its guest
		0x5346414f, // AFS
		0x01161970, // GFS2
		0x7461636f: // OCFS2
		return true
	}
	return false
}
