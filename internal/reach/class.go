package reach

// The classes of hits. Each is one dimension: what is found in it only raises, what cannot be read in it counts as its
// worst.
const (
	ClassStops       = "stops"             // something that runs stops or restarts
	ClassStarts      = "starts"            // something comes to run
	ClassLosesDisk   = "loses_disk"        // a disk in use goes or cannot be reached
	ClassLosesData   = "loses_data"        // data that nothing else holds goes: time since a snapshot, a volume, a key
	ClassLosesBackup = "loses_backup"      // an archive goes, or a guest falls out of every job
	ClassLosesWay    = "loses_way_back"    // a snapshot, pre-image or base that an undo would need goes
	ClassNetwork     = "loses_network"     // a guest or node loses a network
	ClassHA          = "loses_redundancy"  // HA, replication, quorum, Ceph: less is left, or HA acts
	ClassSpace       = "space"             // does not fit, or hardly
	ClassTime        = "time"              // what is lost or stands still, in time
	ClassSetting     = "setting"           // a setting comes into force or changes
	ClassSecret      = "loses_secret"      // a key or password that cannot be had again goes
	ClassLockout     = "lockout"           // castellan, an approver or an operator would not get in
	ClassGains       = "gains_access"      // somebody gets more
	ClassLosesAccess = "loses_access"      // somebody gets less
	ClassOpens       = "opens"             // a network becomes wider
	ClassMoves       = "moves"             // something is moved by it
	ClassBlocked     = "blocked"           // Proxmox will refuse it
	ClassReferences  = "reference_left"    // something goes on naming what is gone
	ClassSelf        = "touches_castellan" // castellan itself depends on it
	ClassUnwalked    = "unwalked"
)
