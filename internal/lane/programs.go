package lane

import (
	"path"
	"strings"
	"sync"
)

// badProgram says why a program may never be run as a command, whatever a rule says; "" where it may.
// It goes by name: a copy or link of another name is not seen. What is allowed is said by the rules; this list keeps a rule that was written too fast from being a shell.
func badProgram(program string) string {
	if strings.Contains(program, "/") && (Arg{Kind: Path}).check(program) != nil {
		return "is no plain absolute path"
	}
	if strings.HasPrefix(program, "-") || strings.Contains(program, "=") || strings.TrimSpace(program) != program || strings.HasPrefix(program, "@") || strings.HasPrefix(program, "~") {
		return "is no name of a program"
	}
	if strings.Contains(program, "/") && within(program, []string{"/proc", "/dev", "/tmp", "/var/tmp", "/run/user", "/sys"}) {
		return "lies where others than root can put programs"
	}
	base := path.Base(program)
	for _, name := range names(base) {
		if why, ok := blocked()[name]; ok {
			return why
		}
		for _, p := range families {
			if strings.HasPrefix(name, p.prefix) && !strings.Contains(" "+p.but+" ", " "+name+" ") {
				return p.why
			}
		}
	}
	return ""
}

// names are what a program's file may be known by: without case, version, build and flavour.
func names(base string) []string {
	out := []string{base}
	add := func(s string) {
		if s != "" {
			out = append(out, s)
		}
	}
	base = strings.ToLower(base)
	add(base)
	for _, end := range []string{".exe", ".real", ".orig", ".distrib", ".static", ".basic", ".tiny", ".nox", ".gtk", ".gtk2", ".gtk3", ".athena", ".openbsd", ".traditional", "-static", "-legacy", "-nft", "-original", ".bullseye", ".usrmerge"} {
		if short, ok := strings.CutSuffix(base, end); ok {
			base = short
			add(base)
		}
	}
	add(strings.TrimRight(base, "0123456789.-"))
	if i := strings.IndexAny(base, "0123456789"); i > 0 && strings.Trim(base[i:], "0123456789.-_") == "" {
		add(strings.TrimRight(base[:i], "-_."))
	}
	return out
}

type family struct{ prefix, but, why string }

var (
	blocked  = sync.OnceValue(programs) // not at every start
	families = []family{
		{"mkfs", "", "destroys what is on a disk"}, {"fsck", "", "changes file systems behind their backs"}, {"sg_", "", "gives commands to disks directly"},
		{"ld-linux", "", startsOthers}, {"ld-musl", "", startsOthers}, {"ld.so", "", startsOthers}, {"python", "", interprets}, {"pypy", "", interprets}, {"perl", "", interprets}, {"ruby", "", interprets}, {"luajit", "", interprets}, {"tclsh", "", interprets}, {"busybox", "", startsOthers}, {"bash", "", shells}, {"ansible", "", startsOthers},
		{"lxc-", "lxc-ls lxc-info", around}, {"git-", "", startsOthers}, {"emacs", "", edits},
		{"systemd-", "systemd-analyze systemd-cgls systemd-cgtop systemd-detect-virt systemd-resolve systemd-delta systemd-path systemd-escape systemd-id128 systemd-hwdb", startsOthers},
	}
)

const (
	shells       = "is a shell"
	interprets   = "runs code that it is given"
	edits        = "can start a shell from within"
	startsOthers = "starts other programs"
	destroys     = "destroys what it is pointed at"
	powers       = "stops or restarts the machine; ask for that as a power operation"
	accounts     = "changes who can sign in"
	installs     = "runs scripts of packages; ask for that as an update"
	databases    = "is a database client with a shell of its own; ask for a query as a probe"
	around       = "goes round castellan; ask for the operation of the API"
	kernel       = "changes what the kernel runs"
	schedules    = "runs commands later"
)

// programs that no rule can allow, with the reason.
func programs() map[string]string {
	m := map[string]string{}
	for why, list := range map[string]string{
		shells: `sh bash dash zsh ksh ksh93 mksh lksh pdksh ash rbash rksh fish csh tcsh yash posh rc es elvish nu xonsh oil osh ysh pwsh powershell cmd scsh git-shell smrsh rssh lshell sash shtool bashbug`,
		interprets: `perl perldoc ruby irb erb php php-cgi phpdbg lua luajit texlua tclsh wish jimsh expect node nodejs deno bun qjs java jshell javaws groovy scala kotlin clojure guile racket sbcl clisp ecl ocaml ghc ghci runghc
			runhaskell erl elixir iex r rscript julia octave gnuplot matlab awk gawk mawk nawk original-awk goawk sed gsed gdb lldb gcc-go go gofmt tcc ipython jupyter bpython bc dc m4 make gmake bmake ninja cmake ctest
			cpack ant mvn gradle rake scons meson bazel just task jq-run xsltproc osascript wscript cscript mshta regsvr32 rundll32 stap bpftrace dtrace systemtap csc mono dotnet swift zig nix nix-shell nix-build guix ghostscript gs`,
		edits: `ed red ex vi view vim vimdiff vimtutor rvim rview nvim neovim gvim elvis nvi vile kak helix hx micro nano rnano pico joe jmacs jpico jstar rjoe mcedit mc mg jed jove ne tilde emacsclient sensible-editor editor select-editor
			less more most lv pg lesspipe sensible-pager pager man info pinfo bat batcat w3m lynx links elinks browsh screen tmux byobu zellij dtach abduco ranger nnn vifm lf fzf htop btop top iotop atop glances dialog whiptail aptitude-curses`,
		startsOthers: `env xargs parallel nice ionice nohup setsid timeout stdbuf time chrt taskset numactl unshare nsenter chroot schroot dchroot fakechroot fakeroot pivot_root switch_root setpriv prlimit setarch linux32 linux64 i386 x86_64
			uname26 personality strace ltrace perf valgrind rr faketime firejail bwrap bubblewrap proot proxychains proxychains4 torsocks tsocks torify chpst setuidgid envuidgid envdir softlimit runsv runsvdir sv-run s6-setuidgid s6-supervise tini dumb-init
			gosu su-exec start-stop-daemon openrc-run supervise-daemon daemonize daemon cpulimit cgexec cgcreate sudo sudoedit doas pkexec su runuser sg newgrp login capsh runcon newrole flock lockfile watch entr incrond inotifywait-run
			run-parts exec eval source . command builtin trap alias coproc busybox toybox sbase-box ubase-box coreutils ld ldd ldconfig openvt chvt agetty getty mgetty sulogin dbus-launch dbus-run-session dbus-send gdbus qdbus dbus-daemon machinectl portablectl
			script scriptlive unbuffer empty rlwrap ssh slogin sshpass autossh mosh rsh rlogin rexec remsh telnet ftp tftp lftp sftp scp rcp socat nc ncat netcat netcat6 cryptcat pwncat sbd ssh-agent ssh-copy-id ssh-keysign sshd dropbear dbclient ssh-add
			mail mailx mutt neomutt sendmail exim exim4 procmail maildrop formail facter puppet chef-client chef-solo salt-call salt-minion cfagent terraform tofu packer vagrant dsh pdsh pssh clush fab cap knife rundeck
			genie runc crun youki kata-runtime ctr nerdctl-run buildah skopeo lxd lxc incus virt-customize guestfish guestmount choom uftrace catchsegv ptrace eatmydata cset sem loginctl-run on_ac_power pon ppp pppd openvpn wg-quick dhclient
			dhcpcd udhcpc ifup ifdown ifreload ifconfig-run logsave multitime hyperfine nq tsp dump-acct logrotate certbot acme.sh debconf debconf-communicate dpkg-trigger update-initramfs mkinitramfs dracut mkinitcpio kernel-install
			pam_exec pppoe vrrpd keepalived apcupsd upssched upsmon xinit startx xterm rxvt konsole gnome-terminal xdg-open open see run-mailcap edit compose print mimeopen`,
		destroys: `rm unlink srm wipe shred secure-delete sfill sswap scrub dd ddrescue dcfldd dc3dd blkdiscard badblocks mke2fs mkdosfs mkntfs mkswap mkudffs mkreiserfs wipefs fdisk sfdisk cfdisk gdisk sgdisk cgdisk parted gparted partx delpart
			pvcreate pvremove pvmove vgcreate vgremove vgreduce lvremove lvreduce lvconvert lvmdump cryptsetup integritysetup veritysetup hdparm sdparm nvme debugfs e2image e2fsck tune2fs xfs_db xfs_io xfs_repair btrfs btrfstune btrfs-convert dmsetup dropdb dropuser
			killall5 sysrq flashrom fwupdmgr efibootmgr ipmitool megacli storcli perccli ssacli hpssacli arcconf smartctl-set zdb zhack mtools mformat`,
		powers:    `shutdown reboot halt poweroff init telinit kexec pm-suspend pm-hibernate rtcwake systemctl-poweroff openrc-shutdown openrc-init`,
		accounts:  `passwd chpasswd chgpasswd newusers useradd usermod userdel groupadd groupmod groupdel adduser deluser addgroup delgroup gpasswd vipw vigr visudo chsh chfn chage pwconv pwunconv grpconv grpunconv faillock pam-auth-update authselect update-passwd setcap google-authenticator ipa kadmin`,
		installs:  `apt apt-get aptitude apt-key apt-mark dpkg dpkg-reconfigure dpkg-deb dpkg-divert tasksel unattended-upgrade unattended-upgrades do-release-upgrade needrestart dnf dnf5 microdnf yum zypper rpm rpmbuild apk pacman yay emerge xbps-install opkg snap snapd flatpak pip pipx uv npm npx yarn pnpm gem bundle bundler cargo rustup composer pear pecl cpan cpanm easy_install conda mamba brew alien checkinstall`,
		databases: `psql pgcli createuser createdb pg_ctl postgres mysql mariadb mysqld_safe sqlite sqlite3 mongo mongosh sqlplus isql osql cqlsh clickhouse clickhouse-client influx redis-cli valkey-cli ldapmodify ldapdelete ldbedit`,
		around:    `pvesh qm pct pveum pvecm pvesm pveceph pvesr pvedaemon pveproxy pvestatd pmxcfs pvenode pveam pveupgrade pveupdate pve-firewall ha-manager qmrestore vzdump qmeventd pmgsh pmgconfig proxmox-backup-manager proxmox-backup-client proxmox-backup-debug proxmox-datacenter-manager-admin proxmox-offline-mirror castellan virsh virt-install qemu-img qemu-nbd qemu-system-x86_64 kvm ceph rbd rados radosgw-admin cephadm corosync-cmapctl corosync-quorumtool`,
		kernel:    `insmod modprobe rmmod depmod kpatch livepatch bpftool`,
		schedules: `at batch crontab cron crond anacron fcron incrontab`,
	} {
		for name := range strings.FieldsSeq(list) {
			m[name] = why
		}
	}
	return m
}
