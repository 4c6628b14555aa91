package undo

import (
	"slices"
	"strconv"
	"strings"

	"castellan/internal/gate"
)

// The reading after a step may show what somebody else wrote between the step's end and it. What the step's request did not
// name is therefore not taken for its doing, and what it named is compared with what it set.

// names says whether the step's request names a key of the object that a sheet shows. Where it is told by other means what
// a step changes (what goes with a deleted object, calls that forget what they are not given), every key counts as named.
func (b *back) names(s gate.Sheet, key string) bool {
	r := b.step.API
	if pathOf(r.Operation) != pathOf(s.Update) || replaces(r.Operation) || roleRow(s) {
		return true
	}
	gone := slices.Concat(listed(r.Text("delete")), listed(r.Text("revert")))
	has := func(name string) bool { return len(r.Get(name)) > 0 || slices.Contains(gone, name) }
	switch {
	case has(key):
		return true
	case strings.Contains(s.Update, "/network/{iface}"): // an address is kept in several keys
		return slices.Contains(addressKeys, key) && slices.ContainsFunc(addressKeys, has)
	case key == "boot" && guestConfig(pathOf(s.Update)): // a device that goes is taken out of the order
		return slices.ContainsFunc(gone, func(k string) bool { return diskName(k) || strings.HasPrefix(k, "net") })
	case key == "schedule":
		return has("starttime") || has("dow")
	}
	return false
}

var addressKeys = []string{"cidr", "address", "netmask", "method", "cidr6", "address6", "netmask6", "method6"}

func pathOf(operation string) string {
	_, path, _ := strings.Cut(operation, " ")
	return path
}

// otherwise is what the step set a key to, where the reading after it shows another value. Only values that the server keeps
// as they are given can be compared: numbers, switches and choices.
func (b *back) otherwise(s gate.Sheet, key string, after rawJSON) (set string, differs bool) {
	if pathOf(b.step.API.Operation) != pathOf(s.Update) {
		return "", false
	}
	set, is := b.step.API.Text(key), shown(after)
	op, ok := b.k.c.Catalog.Lookup(b.product, b.step.API.Operation)
	if !ok || set == "" || is == "" {
		return "", false
	}
	schema, _, has := op.Schema(key)
	if !has || !slices.Contains([]string{"integer", "number", "boolean"}, schema.Type) && len(schema.Enum) == 0 {
		return "", false
	}
	x, xerr := strconv.ParseFloat(plain(set), 64)
	y, yerr := strconv.ParseFloat(plain(is), 64)
	if xerr == nil && yerr == nil {
		return set, x != y
	}
	return set, xerr == nil != (yerr == nil) || !strings.EqualFold(set, is)
}

// plain writes a switch as a number.
func plain(text string) string {
	switch strings.ToLower(text) {
	case "true", "on", "yes":
		return "1"
	case "false", "off", "no":
		return "0"
	}
	return text
}

// ownRow says whether a row of a set is one that the step's request gives or takes.
func (b *back) ownRow(s gate.Sheet, row map[string]rawJSON) bool {
	r := b.step.API
	in := func(param, field string) bool {
		text, ok := scalar(row[field])
		return ok && slices.Contains(listed(r.Text(param)), text)
	}
	switch r.Operation {
	case "PUT /access/acl":
		return in("roles", "roleid") && (in("users", "ugid") || in("groups", "ugid") || in("tokens", "ugid"))
	case "PUT /pools", "PUT /pools/{poolid}":
		return in("vms", "vmid") || in("storage", "storage")
	case "POST /cluster/backup":
		for _, k := range []string{"schedule", "storage", "vmid", "pool", "node", "comment"} {
			if set := r.Text(k); set != "" && set != shown(row[k]) {
				return false
			}
		}
	}
	return true
}
