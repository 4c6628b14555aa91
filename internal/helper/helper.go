// Package helper holds what castellan leaves in a guest that it looks after: a gate, which is the forced command of castellan's
// key and takes fixed words only, and a helper, which is root's and does what a word says. Both are short POSIX shell, made to be
// read. The same text goes by three ways: the bridge, the guest agent, and a script that a person pastes.
//
// The helper's reports are lines "key<TAB>value<TAB>…", begun by "castellan 1 WORD" and ended by "end": without the last line a
// report is cut off. Package patch reads them.
package helper

// Where things lie in a guest.
const (
	Account = "castellan"                        // the system user that the key belongs to
	Gate    = "/usr/local/sbin/castellan-gate"   // forced command
	Helper  = "/usr/local/sbin/castellan-helper" // run by sudo, with one word
	State   = "/var/lib/castellan"               // marks, results, output
	Sudoers = "/etc/sudoers.d/castellan"
)
