// Package helper holds what castellan leaves in a guest that it looks after: a gate, which is the forced command of castellan's
// key and takes fixed words only, and a helper, which is root's and does what a word says. Both are short POSIX shell, made to be
// read. The same text goes by three ways: the bridge, the guest agent, and a script that a person pastes.
//
// The helper's reports are lines "key<TAB>value<TAB>…", begun by "castellan 1 WORD" and ended by "end": without the last line a
// report is cut off. Package patch reads them.
//
// # Lines
//
// Below, columns are set apart by a tab; "-" stands for an empty column in the middle of a line; values hold no tab, line break
// or other control character. Times are seconds since 1970. Lines may come in any order, and keys that a reader does not know
// are a concern, not an error. Lines marked * may be repeated. Whatever could not be found out is said:
//
//	unread WHAT *                     what is not known, and why
//
// CHANGE is the text of one patch.Change: "upgrade name:arch old new archive", "install name:arch - new archive" or
// "remove name:arch old - -", its parts set apart by one space. An archive is called LABEL:CODENAME ("Debian-Security:bookworm-security",
// "Ubuntu:noble-updates"), or by whatever tells it from the family's others, without spaces.
//
// Of check, status, services and result:
//
//	system ID VERSION CODENAME FAMILY NAME   of os-release; FAMILY as in patch.Family
//	kind KIND                         "pve", "pbs", "pmg": a Proxmox host; absent otherwise
//	virt WHERE                        "container", "vm" or "metal"
//	boot ID                           boot id of the kernel
//	clock SECONDS
//	helper VERSION
//	card MAC *                        hardware addresses of the machine's network cards: which machine it is
//
// Of check and status:
//
//	running ID                        the installation under way
//	lock PID PROGRAM SECONDS          who works on packages now, and for how long ("-": not told)
//	database clean|broken|unknown
//	problem TEXT *                    what is wrong with the package database
//	repair yes                        the word repair is what helps
//	reboot yes|no|unknown [WHY] *     the worst of them counts; each WHY is a reason of its own
//	automatic on|off|download|unknown [BY]
//	space PATH FREE NEED *            bytes; NEED is for mode all with a margin (status: 0)
//
// Of check:
//
//	fresh yes                         all lists were read just now; absent otherwise
//	stale WHY *                       an archive that could not be read, an expired or badly signed release file
//	release ARCHIVE SORT DATE UNTIL * SORT "security" or "official"; when the state of an archive that was read was published, and
//	                                  until when it counts ("-": not told)
//	eol TEXT                          the release gets no more updates
//	security CHANGE SEC BYTES [NEEDS] *   what mode security would do now. SEC: "1" where the archive is a security one, else "0";
//	                                  NEEDS: "name:arch name:arch …" of the same mode, without which this one cannot be had
//	all CHANGE SEC BYTES [NEEDS] *    what mode all would do now (of a Proxmox host: full)
//	fix CHANGE SEC BYTES [NEEDS] *    what would complete packages whose dependencies are not met, for the word repair
//	pending NAME ARCH INSTALLED AVAILABLE ARCHIVE SORT WHY NOTE *   as patch.Pending; WHY "-": it is in all
//	uncovered TEXT *                  software that this does not look after
//
// Of services (of result with before- and after- in front of each key):
//
//	boot ID
//	init STATE                        "running", "degraded", …; "-": it cannot tell
//	unit NAME ACTIVE SUB ENABLED RESTARTS *    ENABLED "1", "0" or "-"
//	port PROTO ADDRESS PORT PROGRAM OWNER *    OWNER "system": of root, a system account or a system unit; "account": of somebody
//	                                  who has an account there; "-": not known
//
// Of result:
//
//	outcome none|running|ended|lost|refused
//	id ID
//	mode security|all|full|repair
//	began SECONDS
//	ended SECONDS
//	exit NUMBER                       of the package manager
//	asked CHANGE *
//	done CHANGE *                     what is different now, as the package database has it; the archive is "-"
//	stale TEXT *                      of refused: what differs from what was asked for, or why not; nothing was changed
//	conffile PATH *                   kept as it was; the new one lies beside it
//	log LINE *                        output of the package manager; its middle cut out
//	log-bytes NUMBER                  of all of it
//	note TEXT *
//	database, problem, repair, reboot as above: how it is afterwards
//
// What is missing and what is beyond what was asked for is for package patch to find out: of asked and done.
//
// Of progress:
//
//	outcome, id, mode, began as above
//	note TEXT *                       what it waits for
//	log LINE *                        the last lines
//	log-bytes NUMBER
//
// The answer to upgrade-security, upgrade-all and repair comes at once; the work goes on without the connection:
//
//	started ID                        it was started
//	already ID                        an earlier ask of this id started it, whatever became of that; nothing was started
//	refused WHY                       nothing was started
//
// Their input is lines of words set apart by one space, see Input:
//
//	id ID                             letters, digits, "." "_" "-"; at most 80
//	newer 0|1
//	guest MAC[,MAC...]|-              hardware addresses of the guest that is meant: one of them has to be of this machine
//	CHANGE *                          for repair those of the lines fix, or none
//	end
//
// Of enrolment (the script of Install, see ParseInstalled), begun by "castellan 1 enrol":
//
//	system …, kind, virt, helper      as above
//	host-key TYPE BASE64 *            of its sshd
//	account NAME
//	port NUMBER                       of its sshd
//	installed PACKAGE *               that was missing
//	automatic …                       as above, afterwards
//	note TEXT *                       what may keep castellan out
//	refused WHY                       nothing was enrolled
//
// Of Uninstall, begun by "castellan 1 unenrol": removed PATH *, refused WHY.
//
// # Families
//
// The helper's text is common.sh, family_NAME.sh and a last line that begins it. A family's part defines these functions. They
// print lines as above on standard output, anything else on standard error, and change nothing unless it is said. $run is the
// folder of the installation under way, $run/asked holds its changes, one a line; $tmp is a folder that is removed at the end.
//
//	fam_name          prints the family
//	fam_lock          prints the line lock where somebody holds the package manager's lock, else nothing
//	fam_database      prints database, problem, repair
//	fam_reboot        prints reboot
//	fam_automatic     prints automatic
//	fam_check         refreshes the lists; prints fresh, stale, security, all, pending, space
//	fam_packages      prints "name<TAB>arch<TAB>version<TAB>state" of all that is in the database, sorted; state "ok", or a word for halfway
//	fam_ready MODE    in the detached part: refreshes the lists and compares with $run/asked (where $run/newer holds 1 it may write
//	                  newer versions into it); prints a line of text for whatever differs; nothing printed = it may be installed
//	fam_fetch MODE    fetches what $run/asked needs, before anything is changed; prints "TEXT" for why not (may be absent)
//	fam_install MODE  installs exactly $run/asked; its exit code is the package manager's; output is the log
//	fam_repair        finishes what was interrupted, removing nothing; the same
//	fam_kept          prints conffile, after an installation; and problem where a script of a package failed
//	fam_removes       prints something where an upgrade may replace one package by another (may be absent)
//	fam_hook          called back by the package manager with the word hook, where it has such a thing
package helper
