package local

import "io/fs"

// ownerOf cannot tell; nothing counts as closed then.
func ownerOf(fs.FileInfo) (uid int, ok bool) { return 0, false }
