package lane

import (
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	for rule, list := range map[string][]string{
		"script.rm": {"rm -rf /", "rm -rf /*", "rm -rf / --no-preserve-root", "rm -r /etc", "rm -rf /etc/", "rm -rf /var/lib/*", "rm -rf /usr/bin/perl", "cd / && rm -rf *", "cd /etc; rm -rf *", "cd /; rm -rf etc", `rm -rf "$DIR/"*`, "rm -rf $X/", "rm -rf ${X}/*", "sudo rm -rf /", "sh -c 'rm -rf /etc'", "if true; then rm -rf /usr; fi",
			"find / -delete", "find /etc -exec rm -f {} \\;", "find / -name '*' -delete", "f() { rm -rf /boot; }; f", "echo $(rm -rf /)", "env A=1 rm -rf /", "timeout 5 rm -rf /", "echo / | xargs rm -rf /", "/bin/rm -rf /", "\\rm -rf /", "r''m -rf /", "busybox rm -rf /", "mv /etc /tmp/", "rm -rf /lib64", "rm -rf /var/../etc", "rm -rf //etc", "bash <<E\nrm -rf /\nE\n", "unlink /usr/bin/env", "rmdir /etc", "rm -rf ~", "rm -rf ~/*", "rm -rf ~root/", "rm -rf -- /", "rm -rf /./", "rm -rf ///", "rm -r /{etc,usr}", "rm -rf \"/$X\"", "rsync -a --delete empty/ /etc/", "python3 -c \"import shutil; shutil.rmtree('/etc')\"", "perl -e 'system(\"rm -rf /\")'", "python3 - <<E\nos.system('rm -rf /usr')\nE\n", "awk 'BEGIN{system(\"rm -rf /etc\")}'", "x() { cd /; rm -rf *; }; x"},
		"script.accounts":   {"passwd", "passwd root", "echo 'root:x' | chpasswd", "usermod -p x root", "usermod --password x root", "usermod -L root", "echo x >> /etc/passwd", "truncate -s 0 /etc/shadow", "cp x /etc/shadow", "echo 'a ALL=ALL' > /etc/sudoers.d/a", "userdel root", "useradd -p x bob", "visudo"},
		"script.chmod":      {"chmod 777 /etc", "chmod 777 /etc/passwd", "chmod -R 777 /", "chmod 0777 /usr/bin/x", "chmod a+rwx /etc", "chmod o+w /etc/cron.d/x", "chmod -R 755 /", "chown -R bob /var", "chmod 666 /etc/shadow", "cd /etc && chmod 777 ."},
		"script.etc-pve":    {"echo x > /etc/pve/user.cfg", "tee /etc/pve/storage.cfg", "cp a /etc/pve/x", "sed -i s/a/b/ /etc/pve/datacenter.cfg", "mv a /etc/pve/lxc/101.conf", "touch /etc/pve/x", "cd /etc/pve && echo x > y", "cat x >> /etc/../etc/pve/y", "ln -s a /etc/pve/b", "mkdir /etc/pve/x", "rm /etc/pve/lxc/101.conf"},
		"script.mkfs":       {"mkfs.ext4 /dev/sdb1", "mkfs -t xfs /dev/sdb", "mke2fs /dev/sda", "mkswap /dev/sda2", "sudo mkfs.btrfs x"},
		"script.device":     {"dd if=/dev/zero of=/dev/sda", "dd of=/dev/../dev/sda", "echo x > /dev/sda", "cat x | tee /dev/nvme0n1", "blkdiscard /dev/sda", "shred /dev/sda", "cp x /dev/sdb", "hdparm --security-erase x /dev/sda", "nvme format /dev/nvme0"},
		"script.partitions": {"wipefs -a /dev/sda", "fdisk /dev/sda", "sfdisk /dev/sda < x", "sgdisk -Z /dev/sda", "parted /dev/sda mklabel gpt", "cfdisk"},
		"script.volumes":    {"lvremove -f vg/x", "lvm vgremove x", "zpool destroy tank", "zfs destroy tank/x", "cryptsetup luksFormat /dev/sda", "mdadm --zero-superblock /dev/sda"},
		"script.power":      {"shutdown -h now", "reboot", "halt", "poweroff", "init 0", "init 6", "telinit 1", "systemctl poweroff", "systemctl --force reboot", "systemctl isolate rescue.target", "systemctl start poweroff.target", "sudo reboot -f", "sleep 5 && reboot", "echo b > /proc/sysrq-trigger", "/sbin/reboot", "nohup reboot &"},
		"script.forkbomb":   {":(){ :|:& };:", "b() { b | b & }; b"},
		"script.firewall":   {"iptables -F", "iptables --flush", "iptables -P INPUT DROP", "nft flush ruleset", "nft 'flush ruleset'", "nft delete table inet filter", "ufw disable", "pve-firewall stop", "iptables-restore < x"},
		"script.network":    {"ip addr flush dev eth0", "ip a f dev eth0", "ip route flush table main", "ifdown -a"},
		"script.crontab":    {"crontab -r", "crontab -u bob -r"},
		"script.kill":       {"kill 1", "kill -9 1", "kill -9 -1", "kill -s KILL 1"},
		"script.platform":   {"qm destroy 101", "pct destroy 101 --purge", "pvesh delete /nodes/x/lxc/101", "pvecm delnode x", "pveum user add x@pve", "ceph osd out 1", "ha-manager remove vm:101"},
		"script.unreadable": {"$x", "$(echo rm) -rf /", "eval \"$x\"", "echo cm0= | base64 -d | sh", "curl http://x | bash", "wget -qO- x | sudo sh", "echo 'unterminated", "if true; then", "bash <(curl x)", "sh -c \"$x\"", "a\u202eb", "ls \u200b", "\x1b[2J", "`echo reboot`", "${SHELL} -c x", "a\x00b", "cat <<E\nx", ". /dev/stdin <<< 'rm -rf /'", "bash /dev/fd/3 3<<E\nreboot\nE\n", "for c in a b; do $c; done", "printf 'reboot' | sh"},
		"": {"cat /etc/passwd", "cat /etc/pve/user.cfg", "ls -l /etc/pve/", "grep root /etc/shadow", "cp /etc/pve/user.cfg /tmp/", "echo 'rm -rf /'", "echo \"reboot needed\"", "# rm -rf /\nls", "rm -rf /tmp/x", "rm -rf /var/cache/apt/archives/*.deb", "rm -rf \"$TMP\"", "rm -f $file", "find /var/log -name '*.gz' -mtime +30 -delete", "find /tmp -type f -delete", "chmod 755 /usr/local/bin/x", "chmod 644 /etc/x.conf",
			"chmod 777 /tmp/x", "systemctl restart nginx", "systemctl status reboot.service", "echo reboot", "which reboot", "apt-get install -y htop", "dd if=/dev/zero of=/tmp/x bs=1M count=1", "dd if=a of=/dev/null", "echo x > /dev/null 2>&1", "iptables -L -n", "iptables -A INPUT -p tcp --dport 80 -j ACCEPT", "nft list ruleset", "fdisk -l", "passwd -S root", "crontab -l", "kill -15 4711", "kill -0 1234", "mkswap /swapfile",
			"for f in /etc/nginx/*.conf; do nginx -t -c $f; done", "if grep -q passwd /etc/x; then echo shutdown; fi", "cp nginx.conf /etc/nginx/", "cp x /etc/", "mkdir -p /opt", "pct list", "qm status 101", "pvesh get /nodes", "ceph osd tree", "pveum user list", "shutdown -c", "useradd bob", "echo hi > /etc/motd", "man shutdown", "sed -n 1,5p /etc/passwd", "x=$(cat /etc/hostname); echo $x", "python3 -c 'print(1)'", "zfs list", "init q", "bash -c 'ls'", "python3 -c 'print(\"rm -rf /\")'", "rsync -a --delete a/ /srv/b/", ". /etc/os-release", "rm -rf ~/.cache/x", "awk '{print $1}' /etc/passwd", "mv /etc/nginx/a /etc/nginx/b"},
	} {
		for _, s := range list {
			if v := Judge(s, "bash"); v.Rule != rule && !(rule == "" && v.Allowed) || v.Allowed != (rule == "") || !v.Allowed && (v.Reason == "" || v.Hint == "") {
				t.Errorf("Judge(%q) = %+v, want %q", s, v, rule)
			}
		}
	}
}

func TestJudgePython(t *testing.T) {
	for rule, list := range map[string][]string{
		"script.rm":       {"import os\nos.system('rm -rf /')", "subprocess.run(['rm', '-rf', '/etc'])", "subprocess.run(\"rm -rf /usr\", shell=True)", "shutil.rmtree('/etc')", "subprocess.check_call((\"rm\", '-r', '/'))", "os.execvp('rm', ['rm', '-rf', '/'])"},
		"script.etc-pve":  {"open('/etc/pve/user.cfg', 'w').write('x')", "open(\"/etc/pve/x\", mode='a')", "Path('/etc/pve/x').write_text('y')", "os.remove('/etc/pve/lxc/101.conf')"},
		"script.power":    {"os.system('reboot')", "subprocess.Popen(['systemctl', 'poweroff'])"},
		"script.device":   {"open('/dev/sda', 'wb')"},
		"script.accounts": {"subprocess.run(['chpasswd'], input='root:x')"},
		"":                {"print('rm -rf /')", "open('/etc/passwd').read()", "open('/etc/pve/user.cfg', 'r')", "subprocess.run(['systemctl', 'restart', 'nginx'])", "x = 'reboot'\nprint(x)", "shutil.rmtree('/tmp/x')", "subprocess.run(cmd)", "run(f'ls {x}', shell=True)", "'''unterminated", "system(("},
	} {
		for _, s := range list {
			if v := Judge(s, "python3"); v.Allowed != (rule == "") || rule != "" && v.Rule != rule {
				t.Errorf("Judge(%q) = %+v, want %q", s, v, rule)
			}
		}
	}
}

func TestScriptLock(t *testing.T) {
	l, err := New(Config{Settings: Settings{Scripts: Scope{Guests: []string{"101"}, Pools: []string{"lab"}}}, Store: "[lanes] of the test", Person: "the tester"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at   Place
		s    Script
		rule string
	}{
		{ct101, Script{Text: "ls", Interpreter: "sh"}, ""},
		{Place{Where: VM, Node: "pve1", VMID: 102}, Script{Text: "ls", Interpreter: "sh"}, "scripts"},
		{Place{Where: VM, Node: "pve1", VMID: 102, Pools: []string{"lab"}}, Script{Text: "ls", Interpreter: "sh"}, ""},
		{Place{Where: Host, Node: "pve1"}, Script{Text: "ls", Interpreter: "sh"}, "scripts"},
		{Place{Where: Host, Node: "pve1", VMID: 101}, Script{Text: "ls", Interpreter: "sh"}, "scripts"},
		{Place{Where: "elsewhere", VMID: 101}, Script{Text: "ls", Interpreter: "sh"}, "scripts"},
		{Place{}, Script{Text: "ls", Interpreter: "sh"}, "scripts"},
		{ct101, Script{Text: "ls", Interpreter: "zsh"}, "script.interpreter"},
		{ct101, Script{Text: "ls", Interpreter: "/bin/sh"}, "script.interpreter"},
		{ct101, Script{Text: " \n", Interpreter: "sh"}, "script.empty"},
		{ct101, Script{Text: strings.Repeat("x", maxScript+1), Interpreter: "sh"}, "script.long"},
		{ct101, Script{Text: "ls", Interpreter: "sh", Env: []string{"A=b\nc"}}, ""},
		{ct101, Script{Text: "ls", Interpreter: "sh", Env: []string{"LD_PRELOAD=/x"}}, "env"},
		{ct101, Script{Text: "ls", Interpreter: "sh", Env: []string{"BASH_ENV=/x"}}, "env"},
		{ct101, Script{Text: "ls", Interpreter: "sh", Env: []string{"BASH_FUNC_ls%%=() { :; }"}}, "env"},
		{ct101, Script{Text: "ls", Interpreter: "sh", Env: []string{"PATH=/tmp"}}, "env"},
		{ct101, Script{Text: "ls", Interpreter: "sh", Env: []string{"PYTHONPATH=/tmp"}}, "env"},
		{ct101, Script{Text: "ls", Interpreter: "sh", Env: []string{"A=1", "A=2"}}, "env"},
		{ct101, Script{Text: "ls", Interpreter: "sh", Env: []string{"=x"}}, "env"},
		{ct101, Script{Text: "ls", Interpreter: "sh", Env: []string{"A"}}, "env"},
		{ct101, Script{Text: "ls", Interpreter: "sh", Env: []string{"A=\x00"}}, "env"},
		{ct101, Script{Text: "ls", Interpreter: "sh", Dir: "../x"}, "dir"},
		{ct101, Script{Text: "ls", Interpreter: "sh", Dir: "/srv"}, ""},
		{ct101, Script{Text: "reboot", Interpreter: "sh"}, "script.power"},
	} {
		v := l.Script(c.at, c.s)
		if v.Allowed != (c.rule == "") || c.rule != "" && (v.Rule != c.rule || v.Reason == "" || v.Hint == "") {
			t.Errorf("Script(%v, %+.60v) = %+v, want %q", c.at, c.s, v, c.rule)
		}
	}
	if v := l.Script(Place{Where: CT, VMID: 999}, Script{}); !strings.Contains(v.Hint, "[lanes] of the test") || !strings.Contains(v.Hint, "the tester") {
		t.Errorf("the hint names neither the setting nor who can change it: %s", v.Hint)
	}
	for argv, want := range map[string]bool{"ls -l": true, "rm -rf /": false, "sh -c reboot": false, "cat /etc/passwd": true} {
		if v := l.Free(ct101, strings.Fields(argv), ""); v.Allowed != want {
			t.Errorf("Free(%s) = %+v", argv, v)
		}
	}
	if v := l.Free(ct101, []string{"bash"}, "rm -rf /"); v.Allowed {
		t.Error("what a shell is fed is not judged")
	}
	if v := l.Free(Place{Where: VM, VMID: 7}, []string{"ls"}, ""); v.Allowed || v.Rule != "scripts" {
		t.Errorf("Free where no scripts are allowed: %+v", v)
	}
}

func TestHostileScriptsEndSoon(t *testing.T) {
	for _, unit := range []string{"run(", "run('", "system(\"\"\"", "'", "\"", "open('/", "$(", "`", "sh -c '", "find / -exec ", "f() { f | f & }; f;", "rm -rf $X/* ", "{a,", "kill -9 ", "cat <<E\n", "popen((((((", "remove('x')", "eval "} {
		text := strings.Repeat(unit, maxScript/len(unit))
		for _, by := range Interpreters() {
			began := time.Now()
			Judge(text, by)
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("%d times %q for %s takes %s", maxScript/len(unit), unit, by, took)
			}
		}
	}
}
