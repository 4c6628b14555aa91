package command

import (
	"slices"
	"strings"
	"unicode"
)

// dialect is how a server reads text: where one sees a comment, another may see a statement, so each is asked.
type dialect struct {
	name      string
	nested    bool // comments nest
	dollar    bool // $tag$ … $tag$ quotes
	hash      bool // # begins a comment
	backslash bool // \ escapes in every string
	spaced    bool // -- is a comment before a blank only
	bang      bool // the text of /*! … */ runs
	backtick  bool // ` quotes a name
	bracket   bool // [ quotes a name
}

func dialects() []dialect {
	return []dialect{
		{name: "PostgreSQL", nested: true, dollar: true},
		{name: "MySQL", hash: true, backslash: true, spaced: true, bang: true, backtick: true},
		{name: "SQLite", backtick: true, bracket: true},
	}
}

// token is a word, a name, a literal or a sign of a statement.
type token struct {
	text   string // words in upper case
	name   bool   // a quoted name
	string bool
	word   bool
}

func (j *judge) sql(text string) {
	if !j.enter(text) {
		return
	}
	defer func() { j.nested-- }()
	if strings.IndexByte(text, 0) >= 0 {
		j.raise(High, "it holds a zero byte")
		return
	}
	for line := range strings.Lines(text) {
		if t := strings.TrimSpace(line); strings.HasPrefix(t, ".") && len(t) > 1 && unicode.IsLetter(rune(t[1])) {
			j.raise(High, "%s is a command of the client, which may reach the machine", brief(strings.Fields(t)[0]))
		}
	}
	// A server refuses what it cannot read, so a text is unreadable only where no dialect can read it.
	fault := ""
	for _, d := range dialects() {
		l := &sqlLexer{d: d, s: text}
		statements, wrong := l.statements()
		if l.escapes != "" {
			j.raise(High, "%s", l.escapes)
		}
		for _, s := range statements {
			if !j.statement(s, 0) {
				wrong = "a statement begins with " + brief(s[0].text)
			}
		}
		if wrong == "" {
			fault = "none"
		} else if fault == "" {
			fault = wrong
		}
	}
	if fault != "none" {
		j.raise(High, "it cannot be read as SQL: %s", fault)
	}
}

type sqlLexer struct {
	d       dialect
	s       string
	at      int
	running bool // within /*! … */
	escapes string
}

// statements splits a text at semicolons.
func (l *sqlLexer) statements() (out [][]token, fault string) {
	var now []token
	for {
		t, ok, fault := l.next()
		if fault != "" {
			return append(out, now), fault
		}
		if !ok {
			if len(now) > 0 {
				out = append(out, now)
			}
			if l.running {
				return out, "a comment does not end"
			}
			return out, ""
		}
		if t.text == ";" && !t.string && !t.name {
			if len(now) > 0 {
				out = append(out, now)
			}
			now = nil
			continue
		}
		now = append(now, t)
	}
}

func (l *sqlLexer) next() (t token, ok bool, fault string) {
	for l.at < len(l.s) {
		rest := l.s[l.at:]
		c := rest[0]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v':
			l.at++
		case strings.HasPrefix(rest, "--") && (!l.d.spaced || len(rest) == 2 || rest[2] <= ' '), c == '#' && l.d.hash:
			if n := strings.IndexByte(rest, '\n'); n >= 0 {
				l.at += n
			} else {
				l.at = len(l.s)
			}
		case l.d.bang && !l.running && (strings.HasPrefix(rest, "/*!") || strings.HasPrefix(rest, "/*M!")):
			l.running = true
			l.at += strings.IndexByte(rest, '!') + 1
			for l.at < len(l.s) && l.s[l.at] >= '0' && l.s[l.at] <= '9' {
				l.at++
			}
		case l.running && strings.HasPrefix(rest, "*/"):
			l.running = false
			l.at += 2
		case strings.HasPrefix(rest, "/*"):
			if !l.comment() {
				return t, false, "a comment does not end"
			}
		default:
			return l.token()
		}
	}
	return t, false, ""
}

func (l *sqlLexer) comment() bool {
	depth := 0
	for l.at < len(l.s) {
		switch {
		case strings.HasPrefix(l.s[l.at:], "/*") && (depth == 0 || l.d.nested):
			depth++
			l.at += 2
		case strings.HasPrefix(l.s[l.at:], "*/"):
			depth--
			l.at += 2
			if depth == 0 {
				return true
			}
		default:
			l.at++
		}
	}
	return false
}

func (l *sqlLexer) token() (t token, ok bool, fault string) {
	c := l.s[l.at]
	switch {
	case c == '\'':
		return l.quoted('\'', l.d.backslash, token{string: true})
	case c == '"' && l.d.hash: // a string in MySQL
		return l.quoted('"', true, token{string: true, name: true})
	case c == '"':
		return l.quoted('"', false, token{name: true})
	case c == '`' && l.d.backtick:
		return l.quoted('`', false, token{name: true})
	case c == '[' && l.d.bracket:
		n := strings.IndexByte(l.s[l.at:], ']')
		if n < 0 {
			return t, false, "a name in brackets does not end"
		}
		t = token{name: true, text: strings.ToUpper(l.s[l.at+1 : l.at+n])}
		l.at += n + 1
		return t, true, ""
	case c == '$' && l.d.dollar:
		if tag, is := dollarTag(l.s[l.at:]); is {
			body := l.s[l.at+len(tag):]
			n := strings.Index(body, tag)
			if n < 0 {
				return t, false, "a dollar quote does not end"
			}
			t = token{string: true, text: body[:n]}
			l.at += len(tag)*2 + n
			return t, true, ""
		}
	case c == '\\':
		l.escapes = "a backslash begins a command of the client, which may reach the machine"
	case isWordByte(c):
		n := 1
		for l.at+n < len(l.s) && (isWordByte(l.s[l.at+n]) || l.s[l.at+n] == '$') {
			n++
		}
		w := l.s[l.at : l.at+n]
		after := l.s[l.at+n:]
		if l.d.dollar && (w == "E" || w == "e") && strings.HasPrefix(after, "'") {
			l.at += n
			return l.quoted('\'', true, token{string: true})
		}
		if l.d.dollar && (w == "U" || w == "u") && (strings.HasPrefix(after, "&\"") || strings.HasPrefix(after, "&'")) {
			l.escapes = "a name or text is written in escapes"
		}
		l.at += n
		return token{text: strings.ToUpper(w), word: true}, true, ""
	}
	l.at++
	return token{text: string(c)}, true, ""
}

func isWordByte(c byte) bool { return isNameByte(c) || c >= 0x80 || c == '@' }

func dollarTag(s string) (string, bool) {
	for i := 1; i < len(s); i++ {
		if s[i] == '$' {
			return s[:i+1], true
		}
		if !isNameByte(s[i]) && s[i] < 0x80 || i == 1 && s[i] >= '0' && s[i] <= '9' {
			break
		}
	}
	return "", false
}

func (l *sqlLexer) quoted(q byte, backslash bool, t token) (token, bool, string) {
	var b strings.Builder
	for l.at++; l.at < len(l.s); l.at++ {
		c := l.s[l.at]
		switch {
		case c == '\\' && backslash && l.at+1 < len(l.s):
			l.at++
			b.WriteByte(l.s[l.at])
		case c == q && l.at+1 < len(l.s) && l.s[l.at+1] == q:
			l.at++
			b.WriteByte(q)
		case c == q:
			l.at++
			t.text = b.String()
			if t.name {
				t.text = strings.ToUpper(t.text)
			}
			return t, true, ""
		default:
			b.WriteByte(c)
		}
	}
	return t, false, "a quote does not end"
}

// words that begin statements, by risk.
var (
	sqlReads  = []string{"SELECT", "VALUES", "TABLE", "SHOW", "DESCRIBE", "DESC", "BEGIN", "COMMIT", "ROLLBACK", "START", "END", "SAVEPOINT", "RELEASE", "ABORT", "USE", "HELP", "FETCH", "CLOSE"}
	sqlDML    = []string{"INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE", "UPSERT"}
	sqlHigh   = []string{"CREATE", "ALTER", "DROP", "TRUNCATE", "RENAME", "GRANT", "REVOKE", "REASSIGN", "SECURITY", "DO", "CALL", "EXECUTE", "EXEC", "PREPARE", "LOAD", "ATTACH", "DETACH", "KILL", "SHUTDOWN", "PURGE", "CHANGE", "STOP", "INSTALL", "UNINSTALL", "IMPORT", "FLUSH", "HANDLER", "DECLARE", "DELIMITER", "SOURCE", "SYSTEM", "CLONE", "RESTART", "IF", "WHILE", "LOOP"}
	sqlMedium = []string{"SET", "RESET", "VACUUM", "ANALYZE", "ANALYSE", "REINDEX", "CLUSTER", "CHECKPOINT", "COMMENT", "LOCK", "UNLOCK", "NOTIFY", "LISTEN", "UNLISTEN", "REFRESH", "DISCARD", "OPTIMIZE", "REPAIR", "PRAGMA", "DEALLOCATE", "MOVE"}
)

// statement judges one; false when none begins like that.
func (j *judge) statement(ts []token, depth int) bool {
	for len(ts) > 1 && ts[0].text == "(" {
		ts = ts[1:]
	}
	if len(ts) == 0 {
		return true
	}
	first := ts[0].text
	j.functionsOf(ts)
	j.attributesOf(ts)
	switch {
	case !ts[0].word:
		return false
	case first == "EXPLAIN" || first == "DESCRIBE" || first == "DESC":
		j.explain(ts, depth)
	case first == "WITH":
		j.dml(ts)
		j.selects(ts)
	case first == "COPY" || first == "UNLOAD":
		j.copy(ts)
	case slices.Contains(sqlReads, first):
		j.selects(ts)
		if first == "ROLLBACK" || first == "COMMIT" {
			if slices.ContainsFunc(ts, isWord("PREPARED")) {
				j.raise(High, "%s PREPARED", first)
			}
		}
	case slices.Contains(sqlDML, first):
		j.raise(Medium, "%s changes rows", first)
		if (first == "DELETE" || first == "UPDATE") && !slices.ContainsFunc(ts, isWord("WHERE")) {
			j.raise(Medium, "%s without WHERE changes every row", first)
		}
	case slices.Contains(sqlHigh, first):
		j.raise(High, "%s changes or runs more than rows", first)
	case first == "SET" && slices.ContainsFunc(ts, isWord("GLOBAL", "PERSIST", "ROLE", "SESSION_AUTHORIZATION", "AUTHORIZATION", "PASSWORD", "SYSTEM")):
		j.raise(High, "SET changes the whole server, or who acts")
	case slices.Contains(sqlMedium, first):
		j.raise(Medium, "%s", first)
	default:
		j.raise(Medium, "%s is not known to only read", brief(first))
	}
	return true
}

func isWord(words ...string) func(token) bool {
	return func(t token) bool { return t.word && slices.Contains(words, t.text) }
}

// explain: with ANALYZE the statement runs.
func (j *judge) explain(ts []token, depth int) {
	at := slices.IndexFunc(ts, isWord(slices.Concat(sqlDML, sqlHigh, []string{"SELECT", "WITH", "VALUES", "TABLE"})...))
	head := ts
	if at >= 0 {
		head = ts[:at]
	}
	if !slices.ContainsFunc(head, isWord("ANALYZE", "ANALYSE")) {
		return
	}
	if at < 0 || depth > 3 {
		j.raise(High, "EXPLAIN ANALYZE runs a statement that cannot be told")
		return
	}
	j.statement(ts[at:], depth+1)
}

func (j *judge) copy(ts []token) {
	switch {
	case slices.ContainsFunc(ts, isWord("PROGRAM")):
		j.raise(High, "COPY … PROGRAM runs a command on the server")
	case slices.ContainsFunc(ts, isWord("STDOUT")):
		j.dml(ts)
	case slices.ContainsFunc(ts, isWord("STDIN")):
		j.raise(Medium, "COPY adds rows")
	default:
		j.raise(High, "COPY reads or writes a file of the server")
	}
}

// dml finds what changes rows within a statement.
func (j *judge) dml(ts []token) {
	for i, t := range ts {
		if t.word && slices.Contains(sqlDML, t.text) && !(t.text == "REPLACE" && i+1 < len(ts) && ts[i+1].text == "(") {
			j.raise(Medium, "%s changes rows", t.text)
		}
	}
}

func (j *judge) selects(ts []token) {
	for i, t := range ts {
		if !t.word {
			continue
		}
		next := ""
		if i+1 < len(ts) {
			next = ts[i+1].text
		}
		switch t.text {
		case "INTO":
			if next == "OUTFILE" || next == "DUMPFILE" {
				j.raise(High, "SELECT INTO %s writes a file of the server", next)
			}
			j.raise(Medium, "SELECT INTO makes a table or sets a value")
		case "FOR":
			if slices.Contains([]string{"UPDATE", "SHARE", "NO", "KEY"}, next) {
				j.raise(Medium, "SELECT FOR %s locks rows", next)
			}
		}
	}
	j.dml(ts)
}

// functions of the server that reach files, programs, other servers or other sessions.
var sqlServer = []string{"PG_READ_FILE", "PG_READ_BINARY_FILE", "PG_LS_DIR", "PG_STAT_FILE", "LO_IMPORT", "LO_EXPORT", "PG_TERMINATE_BACKEND", "PG_CANCEL_BACKEND", "PG_RELOAD_CONF", "PG_ROTATE_LOGFILE",
	"PG_FILE_WRITE", "PG_FILE_RENAME", "PG_FILE_UNLINK", "PG_SWITCH_WAL", "PG_PROMOTE", "PG_DROP_REPLICATION_SLOT", "PG_LOGICAL_EMIT_MESSAGE", "PG_START_BACKUP", "PG_STOP_BACKUP", "PG_BACKUP_START", "PG_BACKUP_STOP",
	"QUERY_TO_XML", "QUERY_TO_XML_AND_XMLSCHEMA", "TABLE_TO_XML", "CURSOR_TO_XML", "DATABASE_TO_XML", "SCHEMA_TO_XML", "LOAD_EXTENSION", "SYS_EXEC", "SYS_EVAL", "LOAD_FILE", "XP_CMDSHELL", "READFILE", "WRITEFILE", "EDIT", "FTS3_TOKENIZER",
	"PG_WAL_REPLAY_PAUSE", "PG_WAL_REPLAY_RESUME", "PG_REPLICATION_ORIGIN_DROP", "PG_IMPORT_SYSTEM_COLLATIONS", "OPENROWSET", "XMLPARSE_FILE", "SHELL", "EVAL"}

// functions that only compute.
var sqlPure = strings.Fields(`COUNT SUM AVG MIN MAX COALESCE NULLIF GREATEST LEAST IFNULL IIF ABS ROUND CEIL CEILING FLOOR MOD POWER POW SQRT SIGN LOWER UPPER LENGTH CHAR_LENGTH OCTET_LENGTH SUBSTR SUBSTRING TRIM LTRIM RTRIM
	BTRIM REPLACE CONCAT CONCAT_WS LEFT RIGHT LPAD RPAD POSITION STRPOS INSTR SPLIT_PART FORMAT REPEAT REVERSE INITCAP ASCII CHR HEX UNHEX MD5 NOW CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP DATE TIME DATETIME STRFTIME JULIANDAY
	DATE_TRUNC DATE_PART EXTRACT AGE TO_CHAR TO_DATE TO_TIMESTAMP TO_NUMBER MAKE_DATE DATE_ADD DATE_SUB DATE_FORMAT DATEDIFF TIMESTAMPDIFF YEAR MONTH DAY HOUR MINUTE SECOND CAST CONVERT TYPEOF PG_TYPEOF ROW_NUMBER RANK
	DENSE_RANK NTILE LAG LEAD FIRST_VALUE LAST_VALUE NTH_VALUE OVER PARTITION ARRAY_AGG STRING_AGG GROUP_CONCAT JSON_AGG JSONB_AGG JSON_OBJECT JSON_BUILD_OBJECT JSON_EXTRACT JSON_ARRAY_LENGTH ARRAY_LENGTH UNNEST
	GENERATE_SERIES VERSION CURRENT_USER CURRENT_DATABASE CURRENT_SCHEMA CURRENT_SETTING PG_DATABASE_SIZE PG_TABLE_SIZE PG_TOTAL_RELATION_SIZE PG_RELATION_SIZE PG_SIZE_PRETTY PG_IS_IN_RECOVERY PG_POSTMASTER_START_TIME
	PG_BACKEND_PID TXID_CURRENT_SNAPSHOT HAS_TABLE_PRIVILEGE OBJ_DESCRIPTION COL_DESCRIPTION PG_GET_VIEWDEF PG_GET_INDEXDEF PG_GET_CONSTRAINTDEF REGEXP_REPLACE REGEXP_MATCHES REGEXP_MATCH RANDOM TOTAL QUOTE UNICODE
	PERCENTILE_CONT PERCENTILE_DISC MODE STDDEV VARIANCE CORR EXISTS BOOL_AND BOOL_OR EVERY ANY ALL SOME IN VALUES AS AND OR NOT ON USING BY FROM WHERE SELECT WHEN THEN ELSE CASE END HAVING UNION INTERSECT EXCEPT LIMIT OFFSET
	JOIN LIKE ILIKE BETWEEN IS ROW ARRAY INTERVAL FILTER WITHIN GROUP LATERAL DISTINCT WITH RECURSIVE ROLLUP CUBE SETS VARCHAR CHAR DECIMAL NUMERIC INTO ANALYZE VERBOSE EXPLAIN MATERIALIZED TABLESAMPLE BERNOULLI SET TABLE KEY INDEX`)

// functionsOf looks at the functions that a statement calls.
func (j *judge) functionsOf(ts []token) {
	names := !slices.ContainsFunc(ts[:1], isWord("INSERT", "REPLACE", "CREATE", "COPY", "MERGE")) // there tables stand before brackets
	for i := 0; i+1 < len(ts); i++ {
		t := ts[i]
		if ts[i+1].text != "(" || ts[i+1].string || !t.word && !t.name {
			continue
		}
		switch {
		case slices.Contains(sqlServer, t.text) || strings.HasPrefix(t.text, "DBLINK") || strings.HasPrefix(t.text, "LO_") || strings.HasPrefix(t.text, "PG_LS_") || strings.HasPrefix(t.text, "XP_") ||
			strings.HasPrefix(t.text, "SP_") || strings.HasPrefix(t.text, "PG_READ") || strings.HasPrefix(t.text, "UTL_") || strings.HasPrefix(t.text, "DBMS_"):
			j.raise(High, "%s() reaches files, programs or other sessions of the server", brief(t.text))
		case names && !slices.Contains(sqlPure, t.text):
			j.raise(Medium, "what %s() does is not known", brief(t.text))
		}
	}
}
