package helper

// Where things lie in a guest.
const (
	Account = "castellan"                        // the system user that the key belongs to
	Gate    = "/usr/local/sbin/castellan-gate"   // forced command
	Helper  = "/usr/local/sbin/castellan-helper" // run by sudo, with one word
	State   = "/var/lib/castellan"               // marks, results, output
	Sudoers = "/etc/sudoers.d/castellan"
)
