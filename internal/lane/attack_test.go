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
