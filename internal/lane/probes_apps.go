package lane

import "strings"

// appProbes look into applications.
func appProbes() []Probe {
	return []Probe{
		fixed("containers", "Docker containers with state and ports", guests, program("docker", "ps", "--all")),
		fixed("container_use", "Processor, memory and traffic of the Docker containers", guests, program("docker", "stats", "--no-stream", "--all")),
		fixed("container_disk", "Space that Docker takes", guests, program("docker", "system", "df")),
		{Name: "certificate", Summary: "Subject, issuer and expiry of a certificate in a file", Where: anywhere, Args: []Arg{{Name: "path", Kind: Path, Summary: "the file, PEM", Required: true}}, build: func(v values) Invocation {
			// Links are followed: what is no certificate is not shown.
			return program("openssl", "x509", "-in", v["path"], "-noout", "-subject", "-issuer", "-serial", "-startdate", "-enddate", "-fingerprint")
		}},
		{Name: "psql", Summary: "Answer of one SQL statement that only reads, of PostgreSQL, as CSV", Where: guests, Args: []Arg{
			{Name: "sql", Kind: Query, Summary: "one statement: SELECT, WITH, TABLE, VALUES, SHOW or EXPLAIN; functions that are not known to only compute are refused", Required: true},
			{Name: "database", Kind: Name, Summary: "the database", Default: "postgres"},
			{Name: "role", Kind: Name, Summary: "the role to sign in as", Default: "postgres"},
		}, build: psql},
	}
}

// psql runs as the account of the server, not as root: the server lets it in by its name, and takes nothing else from it.
// The transaction only reads; so does every other that the session could begin.
func psql(v values) Invocation {
	client := program("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "--no-password", "--csv", "--dbname="+v["database"], "--username="+v["role"])
	client.Env = append(Environ(), "PSQL_PAGER=cat", "PGCONNECT_TIMEOUT=5", "PGAPPNAME=castellan",
		"PGOPTIONS=-c default_transaction_read_only=on -c standard_conforming_strings=on -c statement_timeout=20s -c lock_timeout=2s -c idle_in_transaction_session_timeout=30s")
	client.Input = []byte("BEGIN READ ONLY;\n" + strings.TrimRight(v["sql"], " \t\r\n;") + "\n;\nROLLBACK;\n")
	as := client
	as.Argv = append([]string{"setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "--no-new-privs", "--"}, client.Argv...)
	return as.other(1).or(client)
}
