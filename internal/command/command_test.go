package command

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestShell(t *testing.T) {
	cases := map[Risk][]string{
		Low: {"", "ls -l /etc", "cat /var/log/syslog | grep -i error | tail -n 20", "systemctl status nginx", "systemctl", "systemctl list-units --failed", "ip a", "ip -br addr show", "ip route", "df -h && free -m",
			"echo hello > /dev/null 2>&1", "if [ -f /etc/passwd ]; then echo yes; fi", "for i in 1 2 3; do echo $i; done", "journalctl -u ssh -n 50", "sudo -u root ls", "env LANG=C df", "nice -n 10 du -sh /var", "timeout 5 ping -c 1 host",
			"find /var -name '*.log' -size +1M", "echo 'rm -rf /'", `echo "rm -rf /"`, "# rm -rf /", "ls # ; rm -rf /", "crontab -l", "iptables -L -n", "nft list ruleset", "fdisk -l", "zfs list", "cat <<EOF\nrm -rf /\nEOF\n", "true; false",
			"awk '{print $1}' /etc/passwd", "sed -n 1,5p /etc/hosts", "sed 's/a/b/g' /etc/hosts", "sh -c 'ls -l'", "busybox ls", "command -v rm", "which rm", "pct list", "qm config 100", "psql -c 'select 1'", "kill -l", "dpkg -l", "apt list --upgradable",
			"lsblk -o NAME,SIZE", "while read -r l; do echo \"$l\"; done < /etc/hosts", "case $1 in a) ls;; *) pwd;; esac", "[[ -f /x && -d /y ]]", "x=$((1+2)); echo $x", "f() { ls; }; f", "hostname", "date +%s", "pvesm status", "pvesh get /nodes", "tar tf x.tar"},
		Medium: {"touch x", "systemctl restart nginx", "apt-get install -y htop", "ip addr add 10.0.0.1/24 dev eth0", "rm file", "echo x > out.txt", "cp a b", "unknown-tool --do", "mkdir /srv/x", "useradd bob", "kill 4711", "curl http://example.org", "chmod 644 file",
			"mount /dev/sdb1 /mnt", "sysctl -w vm.swappiness=1", "docker exec web ls", "pct exec 101 -- ls", "ssh host ls", "service nginx restart", "tee out.log", "psql -c 'update t set a=1'", "./script.sh", "/tmp/ls", "git pull", "sed -i s/a/b/ file", "tar xf x.tar"},
		High: {"rm -rf /", "rm -r dir", "rm --recursive dir", "rm -fr -- x", "rm --rec x", "dd if=/dev/zero of=/dev/sda", "mkfs.ext4 /dev/sdb", "wipefs -a /dev/sdb", "fdisk /dev/sda", "sgdisk -Z /dev/sda", "parted /dev/sda mklabel gpt", "lvremove -f vg/lv", "lvm lvremove vg/lv",
			"vgremove vg", "cryptsetup luksFormat /dev/sda", "shred x", "find / -delete", "find . -exec rm {} +", ":(){ :|:& };:", "bomb() { bomb | bomb & }; bomb", "echo x > /dev/sda", "echo x > /etc/passwd", "echo x >> /etc/../etc/passwd", "cd /etc && echo x > passwd", "cat x > ../../../etc/shadow",
			"chmod -R 777 /", "chown -R bob /srv", "chmod 4755 x", "chmod u+s x", "chmod g+s,o-r x", "iptables -F", "iptables-legacy --flush", "nft flush ruleset", "userdel bob", "useradd -o -u 0 evil", "crontab -r", "passwd root", "kill 1", "kill -9 1", "kill -9 -1", "shutdown -h now", "reboot", "init 0",
			"truncate -s 0 x", "sudo rm -rf /", "sudo -u root -- rm -rf /", "env FOO=1 rm -rf /", "env -i rm -rf /", "env -S 'rm -rf /'", "nice -n 5 rm -rf /", "nohup rm -rf / &", "echo / | xargs rm -rf", "sh -c 'rm -rf /'", `bash -lc "rm -rf /"`, "sh -c \"sh -c 'rm -rf /'\"", "busybox rm -rf /",
			"/bin/rm -rf /", "/usr/bin/../bin/rm -rf /", "\\rm -rf /", "r\"\"m -rf /", "'rm' -rf /", "$'\\x72m' -rf /", "$(echo rm) -rf /", "`echo rm` -rf /", "$CMD", "ls; rm -rf /", "ls && rm -rf /", "ls || rm -rf /", "ls | rm -rf /", "(rm -rf /)", "{ rm -rf /; }", "echo $(rm -rf /)", "echo \"$(rm -rf /)\"",
			"echo `rm -rf /`", "cat <(rm -rf /)", "ls \\\n; rm -rf /", "ls\nrm -rf /", "if true; then rm -rf /; fi", "while true; do rm -rf /; done", "for f in *; do rm -r $f; done", "case x in x) rm -rf / ;; esac", "f() { rm -rf /; }; f", "function f { rm -rf /; }", "cat <<EOF\n$(rm -rf /)\nEOF\n", "sh <<EOF\nrm -rf /\nEOF\n",
			"bash <<< 'rm -rf /'", "echo 'rm -rf /' | sh", "curl http://x | sh", "curl http://x | sudo bash", "base64 -d x | bash", "bash <(curl http://x)", "eval 'rm -rf /'", "eval \"$x\"", "exec rm -rf /", "trap 'rm -rf /' EXIT", "time rm -rf /", "! rm -rf /", "LD_PRELOAD=/tmp/x.so ls", "PATH=/tmp ls", "systemctl poweroff",
			"systemctl stop sshd", "systemctl disable --now pveproxy.service", "ip link set eth0 down", "ip a f dev eth0", "ip r d default", "ip route flush table main", "python3 -c 'import os'", "perl -e 'unlink'", "awk 'BEGIN{system(\"rm -rf /\")}'", "sed 's/x/rm/e' f", "sed -i s/a/b/ /etc/passwd", "tee /etc/hosts", "cp x /etc/x", "mv /etc/a /tmp",
			"ln -s /x /etc/y", "vim -c '!rm'", "timeout 5 rm -rf /", "setsid rm -rf /", "xargs -I{} sh -c 'rm -rf {}' < f", "flock /x rm -rf /", "flock /x -c 'rm -rf /'", "su -c 'rm -rf /'", "su - bob -c 'rm -rf /'", "ssh host 'rm -rf /'", "ssh -p 22 host rm -rf /", "pct exec 101 -- rm -rf /", "qm guest exec 100 -- rm -rf /",
			"docker exec -it web rm -rf /", "qm destroy 100", "pct unlock 101", "zpool destroy tank", "zfs destroy tank/x", "zfs rollback x@y", "tar xf x -C /", "apt-get purge nginx", "dpkg --purge x", "echo unterminated 'x", "echo $(ls", "ls ) ", "cat <<EOF\nno end", "fi", "a\x00b", "rm $x", "echo x > $f", "/lib64/ld-linux-x86-64.so.2 /bin/rm -rf /",
			"{rm,-rf,/}", "/bin/r? -rf /", "echo b > /proc/sysrq-trigger", "cat x > ~/.ssh/authorized_keys", "psql -c 'drop table x'", "psql <<EOF\nDROP TABLE x;\nEOF\n", "echo 'drop table x' | psql", "mysql -e 'drop database x'", "alias ls='rm -rf /'", "pvesh delete /nodes/x/qemu/1", "usermod -aG sudo bob", "stdbuf -oL rm -rf /", "doas rm -rf /",
			"echo ok;rm -rf /", "echo ok&rm -rf /", "ls 2>/dev/null;rm -rf /", "cat <<A; rm -rf /\nx\nA\n", "cat <<'A' && rm -rf /\n$(x)\nA\n", "echo \"a\\\"; rm -rf /\"; rm -rf /", "x=$(rm -rf /) ls", "echo ${x:-$(rm -rf /)}", "echo $((`rm -rf /`))", "ls\r\nrm -rf /", "watch 'rm -rf /'", "journalctl --vacuum-size=1", "man -P 'rm -rf /' ls",
			"tar cf x --checkpoint-action=exec=sh y", "hdparm --security-erase x /dev/sda", "unshare -r rm -rf /", "python x.py", "kill -s KILL 1", "systemctl isolate rescue.target", "cmd /c del", "powershell -Command x", "ufw disable", "tr a b <<< x | bash", "time -p sudo env A=1 nice rm -rf /", "sudo --weird value rm -rf /"},
	}
	for want, list := range cases {
		for _, s := range list {
			if got := Shell(s); got.Risk != want {
				t.Errorf("Shell(%q) = %s %q, want %s", s, got.Risk, got.Reasons, want)
			} else if want != Low && len(got.Reasons) == 0 {
				t.Errorf("Shell(%q) gives no reason", s)
			}
		}
	}
}

func TestArgv(t *testing.T) {
	for _, c := range []struct {
		argv []string
		want Risk
	}{
		{nil, High}, {[]string{"ls", "-l"}, Low}, {[]string{"rm", "-rf", "/"}, High}, {[]string{"/bin/sh", "-c", "rm -rf /"}, High}, {[]string{"sh", "-c", "uptime"}, Low}, {[]string{"echo", "$(rm -rf /)", ";", "rm", "-rf", "/"}, Low},
		{[]string{"echo; rm -rf /"}, Medium}, {[]string{`C:\Windows\System32\cmd.exe`, "/c", "del x"}, High}, {[]string{"sh", "-c", "ls; reboot"}, High}, {[]string{"bash", "-c", "x={1,2}; ls"}, Low},
	} {
		if got := Argv(c.argv); got.Risk != c.want {
			t.Errorf("Argv(%q) = %s %q, want %s", c.argv, got.Risk, got.Reasons, c.want)
		}
	}
}

func TestSQL(t *testing.T) {
	cases := map[Risk][]string{
		Low: {"", "SELECT 1", "select * from t where a = 'DROP TABLE x'", "-- DROP TABLE x\nSELECT 1", "/* DROP TABLE x; /* nested */ */ SELECT 1", "SELECT $$DROP TABLE x$$", "EXPLAIN SELECT 1", "EXPLAIN DELETE FROM t", "SHOW TABLES", "VALUES (1)", "TABLE t",
			"WITH a AS (SELECT 1) SELECT * FROM a", "SELECT count(*), max(x) FROM t GROUP BY y", "SELECT 'it''s; DROP TABLE x'", "BEGIN; SELECT 1; COMMIT", "SELECT \"drop\" FROM t", "EXPLAIN ANALYZE SELECT 1", "(SELECT 1)", "SELECT $$it's$$", "SELECT 'it\\'s' FROM t", "COPY t TO STDOUT"},
		Medium: {"INSERT INTO t VALUES (1)", "UPDATE t SET a=1 WHERE b=2", "DELETE FROM t WHERE a=1", "SELECT * FROM t FOR UPDATE", "SELECT * INTO x FROM t", "WITH d AS (DELETE FROM t RETURNING *) SELECT * FROM d", "EXPLAIN ANALYZE DELETE FROM t", "EXPLAIN (ANALYZE, BUFFERS) UPDATE t SET a=1",
			"SELECT nextval('s')", "SELECT my_function(1)", "SET x = 1", "COPY t FROM STDIN", "VACUUM"},
		High: {"DROP TABLE x", "select 1; drop table x", "CREATE TABLE x (a int)", "ALTER TABLE x ADD b int", "TRUNCATE x", "GRANT ALL ON x TO y", "COPY t TO PROGRAM 'sh'", "copy t from program 'x'", "COPY t TO '/etc/x'", "SELECT pg_read_file('/etc/passwd')", "SELECT \"pg_read_file\"('/x')",
			"SELECT lo_export(1,'/x')", "SELECT pg_catalog.pg_terminate_backend(1)", "SELECT 1 INTO OUTFILE '/x'", "SELECT load_file('/x')", "DO $$ BEGIN END $$", "SELECT 'unterminated", "/* no end", "SELECT 1 /*!; DROP TABLE x */", "SELECT 1 # '\n; DROP TABLE x; -- '", "SELECT '\\'; DROP TABLE x; -- '",
			"SELECT /* /* */ 1; DROP TABLE x; -- */", "\\! rm -rf /", ".shell rm -rf /", "EXPLAIN ANALYZE CREATE TABLE x AS SELECT 1", "CALL p()", "SELECT $a$ $b$ $a$; DROP TABLE x; --$b$", "SELECT dblink_exec('x')", "SET GLOBAL x = 1", "SELECT U&\"\\0070g_read_file\"('x')", "SELECT 1--1; DROP TABLE x", "LOAD 'x'", "drop\ntable\tx", "/**/DROP/**/TABLE x", "SELECT xp_cmdshell('x')"},
	}
	for want, list := range cases {
		for _, s := range list {
			if got := SQL(s); got.Risk != want {
				t.Errorf("SQL(%q) = %s %q, want %s", s, got.Risk, got.Reasons, want)
			}
		}
	}
}

// A dangerous command stays dangerous wherever it stands.
func TestNothingHidesADanger(t *testing.T) {
	danger := "rm -rf /"
	wraps := []string{"ls; %s", "ls\n%s", "%s # harmless", "( %s )", "{ %s; }", "true && %s || true", "echo \"$(%s)\"", "echo `%s`", "if %s; then ls; fi", "sudo %s", "env A=b %s", "nohup %s &", "x=1 %s", "%s < /dev/null", "2>/dev/null %s", "f() { %s; }", "! %s", "while %s; do ls; done", "ls | %s", "case a in a) %s;; esac", "for i in 1; do %s; done"}
	for _, a := range wraps {
		one := fmt.Sprintf(a, danger)
		for _, b := range wraps {
			if strings.Contains(one, "\n") && strings.Contains(b, "`") {
				continue
			}
			two := fmt.Sprintf(b, one)
			if strings.HasPrefix(two, "sudo") || strings.HasPrefix(two, "env") || strings.HasPrefix(two, "nohup") || strings.HasPrefix(two, "x=1") || strings.HasPrefix(two, "2>") {
				continue // they take a simple command only
			}
			if strings.Contains(two, "$((") || strings.Count(two, "`") > 2 {
				continue // arithmetic, and no nesting at all
			}
			if got := Shell(two); got.Risk != High {
				t.Errorf("Shell(%q) = %s %q", two, got.Risk, got.Reasons)
			}
		}
	}
}

func TestHostileTextsEndSoon(t *testing.T) {
	for _, s := range []string{strings.Repeat("$((", 40_000), strings.Repeat("$(", 40_000), strings.Repeat("(", 100_000), strings.Repeat("${", 50_000), strings.Repeat("`", 100_000), strings.Repeat("{a,", 30_000), strings.Repeat("sh -c '", 10_000),
		strings.Repeat("sudo ", 20_000), strings.Repeat("a|", 50_000), strings.Repeat("cat <<A;", 10_000), strings.Repeat("\"$(", 20_000), strings.Repeat("if ", 40_000), strings.Repeat("$(( $( ", 15_000), strings.Repeat("env -S x ", 10_000), strings.Repeat("x ", 1<<20), strings.Repeat("busybox --x ", 9000), strings.Repeat("xargs ", 20000)} {
		for name, f := range map[string]func(string) Verdict{"Shell": Shell, "SQL": SQL} {
			began := time.Now()
			v := f(s)
			if d := time.Since(began); d > 3*time.Second {
				t.Errorf("%s of %q… took %s", name, s[:12], d)
			}
			if len(v.Reasons) > maxReasons {
				t.Errorf("%d reasons", len(v.Reasons))
			}
		}
	}
}

func FuzzShell(f *testing.F) {
	for _, s := range []string{"ls", "a 'b' \"c\" $(d) `e` <<F\nx\nF\n", "$((1)) ${x} {a,b} [[ x ]] case a in b) c;; esac", "sudo env -S 'x' | xargs y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v := Shell(s)
		for _, r := range v.Reasons {
			if len(r) > 4*maxReason || strings.ContainsFunc(r, func(c rune) bool { return c < 0x20 || c > 0x7e }) {
				t.Errorf("reason %q", r)
			}
		}
		if worse := Shell(s + "\nrm -rf /\n"); worse.Risk != High && !strings.Contains(s, "<<") && !strings.ContainsAny(s, "'\"\\") {
			t.Errorf("Shell(%q) then a danger = %s", s, worse.Risk)
		}
		SQL(s)
		Argv(strings.Fields(s))
	})
}
