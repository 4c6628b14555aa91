package command

import "testing"

// PostgreSQL calls a function for what looks like a column of a value.
func TestAttributesThatAreCalls(t *testing.T) {
	for _, text := range []string{
		`select t.pg_read_file from lower('/etc/hostname') t`, `select t.pg_read_file from lower('/etc/hostname') as t`, `select "t".pg_read_file from lower('/x') "t"`, `select lower.pg_read_file from lower('/x')`,
		`select ('/x'::text).pg_read_file`, `select (array['/x'])[1].pg_read_file`, `select (lower('/x')).anything`, `select (t.x).pg_read_file from (select '/x'::text x) t`,
		`select length(t.pg_read_file) from rows from (lower('/x')) t`, `select f.pg_terminate_backend from abs(1) f`, `select t.evil from current_user t`, `select 1 from lower('/x') t, lateral (select t.evil) z`, `select t . /* x */ evil from lower('/x') t`,
	} {
		if v := SQL(text); v.Risk == Low {
			t.Errorf("%s passes", text)
		}
	}
	for _, text := range []string{
		`select t.name, t.id from things t`, `select pg_catalog.lower('x')`, `select g.g from generate_series(1, 3) g`, `select g.* from generate_series(1, 3) g`, `select s.x from (select 1 as x) s`,
		`select c.relname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on (n.oid = c.relnamespace)`, `select t.x from lateral (select 1 x) t`, `with a as (select 1 as x) select a.x from a where a.x in (1, 2)`, `select count(t.x) n, 1.5 from t`, `select '.a' || t.b from t`,
	} {
		if v := SQL(text); v.Risk != Low {
			t.Errorf("%s: %v %v", text, v.Risk, v.Reasons)
		}
	}
}
