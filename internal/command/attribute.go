package command

import "slices"

// words that stand before a bracket and call nothing.
var sqlNoCall = []string{"FROM", "JOIN", "LATERAL", "IN", "EXISTS", "ANY", "ALL", "SOME", "AS", "AND", "OR", "NOT", "ON", "USING", "BY", "WHERE", "SELECT", "WHEN", "THEN", "ELSE", "CASE", "HAVING", "UNION", "INTERSECT", "EXCEPT",
	"LIMIT", "OFFSET", "LIKE", "ILIKE", "BETWEEN", "OVER", "FILTER", "GROUP", "VALUES", "MATERIALIZED", "DISTINCT", "EXPLAIN", "TABLESAMPLE", "WITHIN", "SETS", "PARTITION"}

// functions that are called without brackets.
var sqlBare = []string{"CURRENT_USER", "SESSION_USER", "USER", "CURRENT_ROLE", "CURRENT_CATALOG", "CURRENT_SCHEMA", "CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP", "SYSTEM_USER"}

// attributesOf finds what PostgreSQL may take for a call: value.name calls the function of that name where the value is no
// row with such a column, and so does alias.name where the alias stands for what a function returns.
func (j *judge) attributesOf(ts []token) {
	values := calledNames(ts)
	for i := 1; i+1 < len(ts); i++ {
		name := ts[i+1]
		if ts[i].text != "." || ts[i].string || ts[i].name || !name.word && !name.name || name.string {
			continue
		}
		if i+2 < len(ts) && ts[i+2].text == "(" && !ts[i+2].string {
			continue // a call like others
		}
		before := ts[i-1]
		switch {
		case (before.text == ")" || before.text == "]") && !before.string && !before.name, before.string && !before.name:
			j.raise(Medium, "what follows a value behind a dot may be called as a function: %s", brief(name.text))
		case (before.word || before.name) && name.text != before.text && slices.Contains(values, before.text):
			j.raise(Medium, "%s stands for what a function returns, so %s may be called as a function", brief(before.text), brief(name.text))
		}
	}
}

// calledNames lists the names that may stand for what a function returns: its own, and its alias.
func calledNames(ts []token) (out []string) {
	alias := func(at int) {
		if at < len(ts) && ts[at].word && ts[at].text == "AS" {
			at++
		}
		if at < len(ts) && (ts[at].word || ts[at].name) {
			out = append(out, ts[at].text)
		}
	}
	var open []bool // of each bracket: whether it is a call's
	for i, t := range ts {
		switch {
		case t.string || t.name:
		case t.word && slices.Contains(sqlBare, t.text):
			out = append(out, t.text)
			alias(i + 1)
		case t.text == "(":
			call := false
			if i > 0 && (ts[i-1].word || ts[i-1].name) {
				call = ts[i-1].name || !slices.Contains(sqlNoCall, ts[i-1].text) || i > 1 && ts[i-1].text == "FROM" && ts[i-2].text == "ROWS"
			}
			if call {
				out = append(out, ts[i-1].text)
			}
			open = append(open, call)
		case t.text == ")" && len(open) > 0:
			call := open[len(open)-1]
			if open = open[:len(open)-1]; call {
				alias(i + 1)
			}
		}
	}
	return out
}
