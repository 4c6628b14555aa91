package lane

import (
	"path"
	"slices"
	"strings"
	"sync"
)

// guard is what of one program's arguments only a rule without placeholders can allow.
type guard struct {
	short string   // letters of short options, alone or among others
	long  string   // long options; what abbreviates one counts
	words string   // operands, and options of more than one letter behind one dash
	bare  bool     // the first operand is read as short options too, as tar does
	only  []string // when given: the first operand must be one of these
	abbr  bool     // words may be abbreviated, as the tools of iproute2 let them: what one of words begins with counts
	why   string
}

// badOption says which arguments destroy something or run other programs; "" where there are none.
func badOption(argv []string) string {
	for _, a := range argv[1:] {
		if strings.HasPrefix(a, "@") || len(a) > 2 && a[0] == '-' && a[2] == '@' {
			return show(a) + " may name a file with more arguments"
		}
		if _, value, ok := strings.Cut(a, "="); ok && strings.HasPrefix(value, "@") {
			return show(a) + " may name a file with more arguments"
		}
	}
	base := path.Base(argv[0])
	for _, name := range names(base) {
		g, ok := guarded()[name]
		if !ok {
			continue
		}
		if why := g.finds(argv[1:]); why != "" {
			return base + ": " + why
		}
		if why := unitsOf(name, argv[1:]); why != "" {
			return base + ": " + why
		}
	}
	return ""
}

// unitsOf says why a unit that systemctl is to act on holds more than itself: to stop a slice, a scope or a target stops
// all within, and a mount is a file system.
func unitsOf(program string, args []string) string {
	operands := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, "-") })
	if program != "systemctl" || len(operands) < 2 || slices.Contains([]string{"status", "show", "is-active", "is-failed", "is-enabled", "cat", "help", "list-units", "list-unit-files", "list-dependencies", "list-timers", "list-sockets", "reset-failed"}, operands[0]) {
		return ""
	}
	for _, a := range operands[1:] {
		for _, kind := range []string{".target", ".slice", ".scope", ".mount", ".automount", ".swap", ".device"} {
			if strings.HasSuffix(a, kind) {
				return show(a) + " is more than one service"
			}
		}
		if name := strings.TrimSuffix(a, ".service"); name == "rescue" || name == "emergency" {
			return show(a) + " takes the machine out of use"
		}
	}
	return ""
}

func (g guard) finds(args []string) string {
	long, words := strings.Fields(g.long), strings.Fields(g.words)
	first := ""
	for _, a := range args {
		given, _, _ := strings.Cut(a, "=")
		switch {
		case strings.HasPrefix(a, "--"):
			for _, l := range long {
				if len(given) > 2 && strings.HasPrefix(l, given) {
					return show(a) + " " + g.why
				}
			}
		case strings.HasPrefix(a, "-") && len(a) > 1:
			if strings.ContainsAny(a[1:], g.short) {
				return show(a) + " " + g.why
			}
		case first == "" && a != "-":
			if first = a; g.bare && a == args[0] && strings.ContainsAny(a, g.short) {
				return show(a) + " " + g.why
			}
		}
		for _, w := range words {
			if given == w || g.abbr && a != "" && a[0] != '-' && strings.HasPrefix(w, a) && (a != first || len(a) > 1 && a != "n") || strings.HasPrefix(w, "-") && len(given) > 2 && strings.HasPrefix(w, given) || strings.HasSuffix(w, "*") && strings.HasPrefix(a, strings.TrimSuffix(w, "*")) {
				return show(a) + " " + g.why
			}
		}
	}
	if g.only != nil && !slices.Contains(g.only, first) {
		return show(first) + " " + g.why
	}
	return ""
}

var guarded = sync.OnceValue(guards)

// guards by the name of the program.
func guards() map[string]guard {
	container := guard{short: "Hlc", long: "--host --context --config --tlscacert --tlscert --tlskey --url --connection --identity --log-level --root --runroot --storage-opt --hooks-dir --module", why: "reaches further than a container that is there",
		only: []string{"start", "stop", "restart", "pause", "unpause", "ps", "images", "logs", "stats", "top", "port", "version", "info", "inspect", "kill", "wait", "diff", "history"}}
	lvm := guard{long: "--config --profile --commandprofile --metadataprofile --configreport --devicesfile", why: "brings settings of its own"}
	remote := guard{short: "HM", long: "--host --machine --root --image", words: "set-* edit*", why: "acts elsewhere, or changes settings"}
	return map[string]guard{
		"systemctl": {short: "HMC", long: "--host --machine --root --image --image-policy --capsule --stdin --drop-in --check-inhibitors --boot-loader-menu --boot-loader-entry --firmware-setup --reboot-argument", why: "acts elsewhere, changes what units are, or stops the machine",
			words: `edit set-property set-environment unset-environment import-environment link revert preset preset-all daemon-reexec isolate poweroff reboot halt kexec soft-reboot suspend hibernate hybrid-sleep suspend-then-hibernate sleep rescue emergency
				default exit switch-root bind mount-image service-log-level service-log-target log-level log-target set-default add-wants add-requires attach whoami-set service-watchdogs cancel
				poweroff.target reboot.target halt.target kexec.target rescue.target emergency.target suspend.target hibernate.target hybrid-sleep.target sleep.target shutdown.target umount.target final.target exit.target soft-reboot.target
				ctrl-alt-del.target initrd-switch-root.target runlevel* systemd-poweroff* systemd-reboot* systemd-halt* systemd-kexec* systemd-suspend* systemd-hibernate* systemd-soft-reboot* debug-shell* system-update.target factory-reset.target default.target multi-user.target graphical.target`},
		"service":     {long: "--full-restart", words: "--status-all-set", why: "acts on every service"},
		"journalctl":  {short: "DM", long: "--vacuum-size --vacuum-time --vacuum-files --rotate --flush --relinquish-var --smart-relinquish-var --setup-keys --update-catalog --sync --directory --file --root --image --machine --cursor-file --verify-key --force --interval", why: "deletes or moves logs, or reads elsewhere"},
		"loginctl":    {short: "HMs", long: "--host --machine --kill-whom --signal", words: "terminate-* kill-* lock-* unlock-* enable-linger disable-linger attach flush-devices activate", why: "acts elsewhere, or ends sessions"},
		"hostnamectl": remote, "timedatectl": remote, "localectl": remote,
		"busctl":      {short: "HMC", long: "--host --machine --address", words: "call set-property emit capture", why: "asks other programs to act"},
		"resolvectl":  {words: "revert flush-caches-all monitor log-level", why: "changes how names are resolved"},
		"networkctl":  {short: "H", words: "delete down up edit mask unmask renew forcerenew reconfigure", long: "--drop-in --stdin", why: "changes the network"},
		"coredumpctl": {short: "oDA", long: "--output --debugger --debugger-arguments --directory --root --image --file", words: "debug gdb dump", why: "starts a debugger, or writes files"},
		"find":        {words: "-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from", why: "acts on what is found, or writes files"},
		"fd":          {short: "xX", long: "--exec --exec-batch", why: "runs a program on what is found"},
		"fdfind":      {short: "xX", long: "--exec --exec-batch", why: "runs a program on what is found"},
		"tar":         {bare: true, short: "IFP", long: "--checkpoint-action --to-command --use-compress-program --rsh-command --info-script --new-volume-script --remove-files --rmt-command --absolute-names --files-from --unlink-first --recursive-unlink --overwrite-dir --owner-map --exclude-from --index-file", words: "--checkpoint*", why: "runs other programs, removes files, or writes anywhere"},
		"bsdtar":      {short: "PU", long: "--use-compress-program --files-from --absolute-paths", why: "runs other programs, or writes anywhere"},
		"cpio":        {short: "FIOEH", long: "--rsh-command --absolute-filenames --pattern-file --file", why: "runs other programs, or writes anywhere"},
		"zip":         {short: "TmP@", long: "--unzip-command --test --move --password", words: "-TT", why: "runs other programs, or removes files"},
		"unzip":       {short: ":P", words: "-:", why: "writes anywhere"},
		"rsync":       {short: "eM", long: "--rsh --rsync-path --daemon --config --del --delete --delete-before --delete-during --delete-delay --delete-after --delete-excluded --remove-source-files --files-from --password-file --log-file --write-batch --only-write-batch --read-batch --temp-dir --early-input --remote-option --write-devices", words: "-e", why: "runs other programs, deletes, or reads more arguments"},
		"git":         {short: "c", long: "--exec-path --config-env --upload-pack --receive-pack --exec --upload-archive --template --git-dir --work-tree --open-files-in-pager --extcmd --tool --ext-diff --textconv --editor --config --super-prefix", words: "-c ext::* file::* config clean reset filter-branch submodule bisect rebase difftool mergetool gc hook maintenance daemon shell credential* remote-ext worktree alias*", why: "runs other programs, or throws work away"},
		"sort":        {short: "oTS", long: "--compress-program --output --temporary-directory --files0-from", why: "runs other programs, or writes files"},
		"curl":        {short: "oOKTDcJqUxEF", long: "--output --remote-name --remote-name-all --remote-header-name --output-dir --config --upload-file --dump-header --cookie-jar --libcurl --trace --trace-ascii --stderr --unix-socket --abstract-unix-socket --engine --proxy --preproxy --netrc-file --cert --key --form --etag-save --hsts --alt-svc --proto --write-out --create-dirs --next --data-binary --data-urlencode --resolve --connect-to", words: "file:* scp:* sftp:* dict:* gopher:* ldap:* tftp:* smb:*", why: "writes files, reads files of the machine, or goes elsewhere"},
		"wget":        {short: "OoaieBPxrm", long: "--output-document --output-file --append-output --input-file --execute --config --use-askpass --post-file --body-file --directory-prefix --save-cookies --load-cookies --warc-file --mirror --recursive --rejected-log --hsts-file --use-server-timestamps --content-disposition --input-metalink --certificate --private-key", words: "file:*", why: "writes files, reads files of the machine, or runs programs"},
		"ip":          {abbr: true, short: "bn", long: "--batch --netns", words: "-batch -force -netns exec flush delete del down set add replace change append nomaster netns vrf", why: "changes the network, or runs programs"},
		"tc":          {abbr: true, short: "bn", words: "-batch -netns add del delete replace change exec", why: "changes the network"},
		"bridge":      {abbr: true, short: "bn", words: "-batch -netns add del delete replace set", why: "changes the network"},
		"ss":          {short: "KDFN", long: "--kill --diag --filter --net", why: "ends connections, or reads and writes files"},
		"tcpdump":     {short: "zwWCGFZ", long: "--relinquish-privileges", words: "-z --print-file", why: "runs other programs, or writes files"},
		"nmap":        {short: "o", long: "--script --script-args --script-args-file --datadir --resume --excludefile --stylesheet", words: "-iL -oN -oX -oA -oG -oS", why: "runs scripts, or writes files"},
		"sysctl":      {short: "pf", long: "--load --system --pattern", why: "changes the kernel's settings"},
		"dmesg":       {short: "cCDEnF", long: "--clear --read-clear --console-off --console-on --console-level --file", why: "clears or changes the kernel's log"},
		"date":        {short: "sf", long: "--set --file", words: "0* 1*", why: "sets the clock, or reads files"},
		"docker":      container, "podman": container, "nerdctl": container,
		"crictl":          {only: []string{"ps", "pods", "images", "logs", "inspect", "stats", "version", "info"}, short: "cri", long: "--config --runtime-endpoint --image-endpoint", why: "reaches further than a container that is there"},
		"supervisorctl":   {short: "csup", long: "--configuration --serverurl --username --password", only: []string{"start", "stop", "restart", "status", "tail", "pid", "avail"}, why: "brings other settings, or more than starts and stops"},
		"pm2":             {only: []string{"restart", "reload", "list", "ls", "status", "logs", "describe", "stop"}, why: "starts other programs"},
		"fail2ban-client": {short: "cspf", words: "action actionban actionunban actionstart actionstop addaction add-action start", why: "lets commands be run"},
		"docker-compose":  {short: "fHc", long: "--file --host --context --project-directory --env-file --project-name", words: "run exec up create build down rm cp kill", why: "makes, removes or enters containers"},
		"kubectl":         {only: []string{"get", "describe", "logs", "top", "version", "explain", "api-resources", "cluster-info"}, long: "--kubeconfig --server --as --as-group --token --raw --output-directory", why: "changes the cluster, or goes elsewhere"},
		"zpool":           {only: []string{"list", "status", "get", "history", "iostat", "events", "scrub"}, why: "changes pools"},
		"zfs":             {only: []string{"list", "get", "holds", "diff", "userspace", "groupspace", "snapshot"}, why: "changes file systems"},
		"lvs":             lvm, "vgs": lvm, "pvs": lvm, "lvdisplay": lvm, "vgdisplay": lvm, "pvdisplay": lvm, "lvscan": lvm, "vgscan": lvm, "pvscan": lvm, "lvcreate": lvm, "lvextend": lvm, "lvchange": lvm, "vgchange": lvm, "vgextend": lvm, "lvm": {words: "*", why: "is every tool of LVM at once"},
		"mdadm":      {only: []string{""}, short: "CASGrfFB", long: "--create --assemble --stop --grow --zero-superblock --remove --fail --add --monitor --program --config --misc --build --manage --run --force", why: "changes arrays, or runs programs"},
		"smartctl":   {short: "tsoSX", long: "--test --set --smart --offlineauto --saveauto --abort", why: "changes or tests disks"},
		"ethtool":    {short: "sKCGAUXEfrLNpWP", long: "--change --flash --negotiate --reset --set-*", why: "changes network cards"},
		"openssl":    {long: "--engine --config --out", words: "-engine -config -out -writerand -provider -provider-path -passin -pass -CAcreateserial -keyout s_server engine rand genrsa genpkey ca", why: "loads code, writes files, or reads secrets"},
		"nginx":      {short: "cgpe", why: "loads other settings, which name code"},
		"apache2ctl": {short: "cCdfDEk", words: "-k", why: "loads other settings, which name code"},
		"apachectl":  {short: "cCdfDEk", why: "loads other settings, which name code"},
		"httpd":      {short: "cCdfDEk", why: "loads other settings, which name code"},
		"rg":         {long: "--pre --pre-glob --hostname-bin --search-zip", short: "z", why: "runs other programs"},
		"ag":         {long: "--pager", why: "runs other programs"}, "ack": {long: "--pager --output --ackrc", why: "runs other programs"},
		"file":    {short: "CmfPS", long: "--compile --magic-file --files-from --no-sandbox", why: "writes or loads a table"},
		"install": {short: "smo", long: "--strip --strip-program --mode --owner", why: "runs other programs, or gives rights"}, "strip": {short: "o", why: "writes files"},
		"split": {long: "--filter", why: "runs other programs"}, "csplit": {long: "--prefix", why: "writes files"},
		"iconv": {short: "o", long: "--output", why: "writes files"}, "tree": {short: "oR", why: "writes files"}, "xxd": {short: "r", why: "writes files"},
		"pkill": {words: "*", why: "ends every process whose name holds a text"}, "killall": {short: "ruZ", long: "--regexp --user --context", why: "ends processes that are not told here"}, "fuser": {short: "k", long: "--kill", why: "ends processes"},
		"kill":        {words: "-1 0 1", why: "ends every process, or the first"},
		"update-rc.d": {words: "*", why: "changes what starts with the machine"}, "rc-update": {words: "*", why: "changes what starts with the machine"}, "update-alternatives": {words: "*", long: "--install --set --config --set-selections", why: "lets names stand for other programs"},
		"chmod": {short: "R", long: "--recursive --reference", words: "777 0777 1777 a+rwx a=rwx o+w a+w", why: "gives rights widely"}, "chown": {short: "R", long: "--recursive --from --reference", why: "gives files away widely"}, "chgrp": {short: "R", long: "--recursive --reference", why: "gives files away widely"},
		"mount": {long: "--bind --rbind --move --fstab --namespace", short: "oBMRTNa", why: "changes what stands where"}, "umount": {short: "aRANfl", long: "--all --recursive --namespace --force --lazy", why: "takes much out of use"},
	}
}
