// Package self holds castellan's own operations: finding and describing operations, the door to every catalogued
// one, plans, and the audit.
package self

import (
	"cmp"
	"slices"

	"castellan/internal/catalog"
	"castellan/internal/estate"
	"castellan/internal/gate"
)

// Config is what the operations work with.
type Config struct {
	Catalog *catalog.Catalog // nil: the operations are declared only, for listing them
	Estate  gate.Estate      // tells guests from later ones of the same id; nil: estate.New()
	Audit   Audit            // nil: the two audit operations say that there is none
	// Settings of castellan itself; nil: the two operations on them say that there are none.
	Settings Settings
	// Doctor looks at the process that the operations run in; nil: the operation of that name says that there is none.
	Doctor Doctor
	Undo   Undoer // nil: undo says that nothing is kept
}

// Operations lists castellan's own operations, sorted by name.
func Operations(c Config) []*gate.Operation {
	if c.Estate == nil {
		c.Estate = estate.New()
	}
	ops := []*gate.Operation{
		findOperation(c), describeOperation(c), callOperation(c), showPlan(), applyPlan(), listPlans(), withdrawPlan(), auditSearch(c.Audit), auditVerify(c.Audit), doctor(c), getSettings(c.Settings),
		updateSettings(c.Settings), undoPlan(c.Undo),
	}
	slices.SortFunc(ops, func(a, b *gate.Operation) int { return cmp.Compare(a.Name, b.Name) })
	return ops
}

func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}
