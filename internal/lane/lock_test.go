package lane

import (
	"strings"
	"testing"
)

func lockOf(t *testing.T, rules ...string) *Lock {
	t.Helper()
	var s Settings
	for _, r := range rules {
		s.Commands = append(s.Commands, Rule{Guests: []string{"101"}, Argv: r})
	}
	l, err := New(Config{Settings: s, Store: "the test"})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var ct101 = Place{Where: CT, Node: "pve1", VMID: 101}

func TestCommand(t *testing.T) {
	for _, c := range []struct {
		rule, argv string // arguments part at "␣" where they hold blanks
		allowed    bool
		by         string // the rule that refused
	}{
		{"systemctl restart <unit:nginx>", "systemctl restart nginx", true, ""},
		{"systemctl restart <unit:nginx>", "systemctl restart nginx.service", true, ""},
		{"systemctl restart <unit:nginx>", "systemctl restart nginx.socket", false, "commands"},
		{"systemctl restart <unit:nginx>", "systemctl restart ssh", false, "commands"},
		{"systemctl restart <unit:nginx>", "systemctl restart nginx ssh", false, "commands"},
		{"systemctl restart <unit:nginx>", "systemctl restart", false, "commands"},
		{"systemctl restart <unit>", "systemctl restart --root=/x", false, "commands"},
		{"systemctl restart <unit>", "systemctl restart -Hroot", false, "commands"},
		{"systemctl restart <unit>", "systemctl restart --", false, "commands"},
		{"systemctl start <unit>", "systemctl start poweroff.target", false, "option"},
		{"systemctl start <unit>", "systemctl start debug-shell", false, "option"},
		{"systemctl stop <unit>", "systemctl stop ssh", false, "risk"},
		{"systemctl stop ssh", "systemctl stop ssh", true, ""},
		{"systemctl <word> <unit>", "systemctl set-property nginx", false, "option"},
		{"systemctl <word> <unit>", "systemctl edit nginx", false, "option"},
		{"systemctl edit nginx", "systemctl edit nginx", true, ""},
		{"systemctl <word:start,stop,restart> <unit:nginx,php8.2-fpm>", "systemctl stop php8.2-fpm", true, ""},
		{"systemctl <word:start,stop,restart> <unit:nginx,php8.2-fpm>", "systemctl kill nginx", false, "commands"},
		{"/opt/app/bin/reload <word>", "/opt/app/bin/reload now", true, ""},
		{"/opt/app/bin/reload <word>", "reload now", false, "commands"},
		{"nginx -t", "/usr/sbin/nginx -t", false, "commands"},
		{"nginx -t", "nginx -t", true, ""},
		{"nginx -t <word...>", "nginx -t a b c", true, ""},
		{"nginx -t <word...>", "nginx -t a -g x", false, "commands"},
		{"journalctl --vacuum-time=<span>", "journalctl --vacuum-time=7d", false, "option"},
		{"journalctl --vacuum-t=<span>", "journalctl --vacuum-t=7d", false, "option"},
		{"journalctl --vacuum-time=7d", "journalctl --vacuum-time=7d", true, ""},
		{"journalctl -n <number:1-100> -u <unit>", "journalctl -n 50 -u nginx", true, ""},
		{"journalctl -n <number:1-100> -u <unit>", "journalctl -n 500 -u nginx", false, "commands"},
		{"journalctl -n <number:1-100> -u <unit>", "journalctl -n 050 -u nginx", false, "commands"},
		{"tail -n <number> -- <path:/var/log>", "tail -n 5 -- /var/log/nginx/error.log", true, ""},
		{"tail -n <number> -- <path:/var/log>", "tail -n 5 -- /var/logs", false, "commands"},
		{"tail -n <number> -- <path:/var/log>", "tail -n 5 -- /var/log/../../etc/shadow", false, "commands"},
		{"cat <path>", "cat /etc/hosts", true, ""},
		{"cat <path>", "cat etc/hosts", false, "commands"},
		{"sysctl vm.swappiness=<number:0-100>", "sysctl vm.swappiness=10", true, ""},
		{"sysctl vm.swappiness=<number:0-100>", "sysctl vm.swappiness=101", false, "commands"},
		{"tar xf <path:/srv> <word...>", "tar xf /srv/a.tar b", true, ""},
		{"tar xIf <word> <path:/srv>", "tar xIf sh /srv/a.tar", false, "option"},
		{"tar --checkpoint-a=<word> -xf <path:/srv>", "tar --checkpoint-a=exec -xf /srv/a", false, "option"},
		{"find <path:/srv> -delete", "find /srv/x -delete", false, "option"},
		{"docker restart <name>", "docker restart web", true, ""},
		{"docker exec <name> ls", "docker exec web ls", false, "option"},
		{"docker <word> <name>", "docker rm web", false, "option"},
		{"uptime", "uptime", true, ""},
		{"uptime", "uptime;id", false, "argument"},
		{"uptime", "rm -rf /", false, "program"},
		{"uptime", "/bin/../bin/rm -rf /", false, "program"},
		{"uptime", "busybox rm -rf /", false, "program"},
		{"uptime", "python3.12 x.py", false, "program"},
		{"uptime", "vim.tiny", false, "program"},
		{"uptime", "bash5.2", false, "program"},
		{"uptime", "SH -c id", false, "program"},
		{"uptime", "PATH=/tmp uptime", false, "program"},
		{"echo <word>", "echo $(id)", false, "argument"},
		{"echo <word>", "echo `id`", false, "argument"},
		{"echo <word>", "echo a|b", false, "argument"},
		{"echo <word>", "echo a&b", false, "argument"},
		{"echo <word>", "echo a>b", false, "argument"},
		{"echo <word>", "echo a<b", false, "argument"},
		{"echo <word>", "echo a\nb", false, "argument"},
		{"echo <word>", "echo a\x00b", false, "argument"},
		{"echo <word>", "echo a\u200bb", false, "argument"},
		{"echo <word>", "echo \u0430b", false, "argument"},
		{"echo <word>", "echo \uff1bb", false, "argument"},
		{"echo <word>", "echo @/etc/passwd", false, "commands"},
		{"echo <word>", "echo ..", false, "commands"},
		{"echo <word>", "echo a␣b", false, "commands"},
		{"echo <word>", "echo -n", false, "commands"},
		{"echo <word>", "echo \u2013n", false, "argument"},
		{"cmdx data=<word>", "cmdx data=@x", false, "commands"},
	} {
		l := lockOf(t, c.rule)
		var argv []string
		for _, a := range strings.Split(c.argv, " ") {
			argv = append(argv, strings.ReplaceAll(a, "␣", " "))
		}
		v := l.Command(ct101, Command{Argv: argv})
		if v.Allowed != c.allowed || !c.allowed && v.Rule != c.by {
			t.Errorf("%s: %q: %+v, want allowed %v by %q", c.rule, argv, v, c.allowed, c.by)
		}
		if !v.Allowed && (v.Reason == "" || v.Hint == "") {
			t.Errorf("%q is refused without a reason or hint: %+v", argv, v)
		}
	}
}
