package lane

import (
	"slices"
	"strings"
	"testing"
)

// sample is a value that each argument takes.
func sample(t *testing.T, a Arg) string {
	t.Helper()
	switch a.Kind {
	case Enum:
		return a.Enum[len(a.Enum)-1]
	case Number:
		if a.Max > 0 {
			return "1"
		}
		return "7"
	case Path:
		if a.Under != "" {
			return a.Under + "/a b/c.log"
		}
		return "/srv/data"
	case Query:
		return "select 1"
	case Device:
		return "/dev/sda"
	case Span:
		return "2h"
	}
	return "nginx"
}

func samples(t *testing.T, p Probe, all bool) map[string]string {
	out := map[string]string{}
	for _, a := range p.Args {
		if all || a.Required {
			out[a.Name] = sample(t, a)
		}
	}
	return out
}

func TestProbesAreWellFormed(t *testing.T) {
	all := Probes()
	for i, p := range all {
		if i > 0 && all[i-1].Name >= p.Name {
			t.Errorf("%s and %s are not in order", all[i-1].Name, p.Name)
		}
		if found, ok := Find(p.Name); !ok || found.Name != p.Name {
			t.Errorf("Find(%s) finds %q", p.Name, found.Name)
		}
		if p.Summary == "" || len(p.Where) == 0 || strings.Trim(p.Name, "abcdefghijklmnopqrstuvwxyz_") != "" {
			t.Errorf("%s: summary, place or name is wrong", p.Name)
		}
		for _, a := range p.Args {
			if a.Summary == "" || a.Kind == "" {
				t.Errorf("%s %s: no summary or kind", p.Name, a.Name)
			}
			if a.Default != "" {
				if err := a.Check(a.Default); err != nil {
					t.Errorf("%s: %v", p.Name, err)
				}
			}
		}
		for _, given := range []bool{false, true} {
			inv, err := p.Command(samples(t, p, given))
			if err != nil {
				t.Errorf("%s: %v", p.Name, err)
				continue
			}
			for _, i := range append([]Invocation{inv}, inv.Alternatives...) {
				if len(i.Argv) == 0 || strings.Contains(i.Argv[0], "/") || !slices.Contains(i.OK, 0) || !slices.Contains(i.Env, "LC_ALL=C.UTF-8") {
					t.Errorf("%s: %q, exit codes %d", p.Name, i.Argv, i.OK)
				}
			}
			for _, i := range inv.Alternatives {
				if len(i.Alternatives) > 0 {
					t.Errorf("%s: an alternative has alternatives", p.Name)
				}
			}
		}
	}
}

func TestProbeArgumentsAreClosed(t *testing.T) {
	bad := []string{"", "-x", "--help", "a;b", "a|b", "a&b", "$(a)", "`a`", "a<b", "a>b", "a\nb", "a\x00b", "a\rb", "a\x1bb", "nginx", "аbc", "a\u200bb", "a\u00a0b", "ｎginx", "\xff", "/../etc", "/a/./b", "/a//b", "/a/", "/*", "/a?b", "a'b", `a"b`, `a\b`, "0101", "+5", "1e3", "٣", "１"}
	for _, p := range Probes() {
		for _, a := range p.Args {
			if a.Kind == Query {
				continue
			}
			for _, b := range bad {
				if b == "nginx" && a.Kind != Path && a.Kind != Number && a.Kind != Span && a.Kind != Enum && a.Kind != Device || b == "0101" && a.Kind != Number && a.Kind != Path && a.Kind != Device && a.Kind != Enum && a.Kind != Span || b == "1e3" && a.Kind != Number && a.Kind != Path && a.Kind != Span && a.Kind != Enum && a.Kind != Device {
					continue
				}
				args := samples(t, p, true)
				args[a.Name] = b
				if inv, err := p.Command(args); err == nil {
					t.Errorf("%s takes %s=%q: %q", p.Name, a.Name, b, inv.Argv)
				}
			}
		}
		if _, err := p.Command(map[string]string{"no such": "x"}); err == nil {
			t.Errorf("%s takes an argument that it does not have", p.Name)
		}
	}
	if _, err := (Probe{Name: "rm"}).Command(nil); err == nil {
		t.Error("a probe that is not of the catalogue makes a command")
	}
}

func TestID(t *testing.T) {
	for _, s := range []string{"0101", "101 -- sh", "１０１", "٣٣٣", "+101", "-101", " 101", "101\n", "99", "0", "", "1e3", "0x65", "101.0", "1000000000", "99999999999999999999"} {
		if n, err := ID(s); err == nil {
			t.Errorf("ID(%q) = %d", s, n)
		}
	}
	for s, want := range map[string]int{"100": 100, "101": 101, "999999999": 999999999} {
		if n, err := ID(s); err != nil || n != want {
			t.Errorf("ID(%q) = %d, %v", s, n, err)
		}
	}
}

func TestReadsOnly(t *testing.T) {
	for _, good := range []string{"select 1", "SELECT * FROM t WHERE a = 'x'", "  with a as (select 1) select * from a;", "table t", "show server_version", "explain select 1", "(select 1) union (select 2)", "select count(*) from pg_stat_activity", "select xact_commit from pg_stat_database", "select 1 -- done"} {
		if err := readsOnly(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", ";", "commit", "commit; drop table t", "select 1; commit", "insert into t values (1)", "select pg_sleep(100)", "select pg_read_file('/etc/passwd')", `select 1 \! sh`, `\copy t to program 'sh'`, "copy t to program 'sh'", "copy t to stdout",
		"begin", "rollback", "set role x", "select * from pg_authid", "select * from PG_SHADOW", "select 1 /* no end", "select 'no end", "select set_config('a','b',false)", "select 1\x00", "select nextval('s')", "explain analyze delete from t", "with d as (delete from t returning *) select * from d",
		"select * into x from t", "select * from t for update", "vacuum", "do $$ begin end $$", "prepare transaction 'x'", "select\u200b 1\xff", "-- x\ncommit", "/* x */ commit", "select lo_import('/etc/passwd')", "listen x", "select dblink('a','b')"} {
		if err := readsOnly(bad); err == nil {
			t.Errorf("%q passes", bad)
		}
	}
}
