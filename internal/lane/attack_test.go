package lane

import "testing"

// A query may not call what it does not seem to call, nor read passwords by another of their names.
func TestQueriesThatLeaveTheLane(t *testing.T) {
	for _, q := range []string{
		`select t.pg_read_file from lower('/etc/shadow') t`, `select ('/etc/shadow'::text).pg_read_file`, `select f.pg_terminate_backend from abs(1) f`,
		`select * from information_schema.user_mapping_options`, `select umoptions from information_schema._pg_user_mappings`, `select * from "pg_authid"`,
	} {
		if _, err := psqlOf(q); err == nil {
			t.Errorf("%s passes", q)
		}
	}
	for _, q := range []string{`select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace`, `select (1 + 2) as three`, `select count(*) n from t`} {
		if _, err := psqlOf(q); err != nil {
			t.Error(err)
		}
	}
}

func psqlOf(q string) (Invocation, error) {
	p, _ := Find("psql")
	return p.Command(map[string]string{"sql": q})
}

// What stands for more than one service, and abbreviations of words that are refused, pass by no placeholder.
func TestWordsThatLeaveTheLane(t *testing.T) {
	l := lockOf(t, "systemctl restart <unit>", "systemctl stop <unit>", "systemctl status <unit>", "ip <word...>")
	for _, argv := range [][]string{
		{"systemctl", "restart", "sysinit.target"}, {"systemctl", "stop", "system.slice"}, {"systemctl", "stop", "init.scope"}, {"systemctl", "stop", "srv.mount"}, {"systemctl", "restart", "emergency.service"},
		{"ip", "netn", "ex", "x", "sh"}, {"ip", "netns", "e", "x", "sh"}, {"ip", "vr", "exe", "x", "sh"}, {"ip", "link", "de", "eth0"}, {"ip", "addr", "fl", "eth0"}, {"ip", "l", "s", "eth0", "mtu", "100"},
	} {
		if v := l.Command(ct101, Command{Argv: argv}); v.Allowed {
			t.Errorf("%q passes", argv)
		}
	}
	for _, argv := range [][]string{{"systemctl", "restart", "nginx"}, {"systemctl", "status", "multi-user.slice"}, {"systemctl", "restart", "app.socket"}, {"ip", "addr", "show"}, {"ip", "a"}, {"ip", "route", "list"}, {"ip", "n"}, {"ip", "link", "show", "dev", "eth0"}} {
		if v := l.Command(ct101, Command{Argv: argv}); !v.Allowed {
			t.Errorf("%q: %+v", argv, v)
		}
	}
}
