package undo

import (
	"fmt"
	"slices"
	"strings"

	"castellan/internal/gate"
)

// renames says whether the request gives an object another name. Its sheet would then show one object gone or another one
// made, and undo would make or delete what only has another name.
func (r *request) renames() bool {
	from, to := r.renamed()
	return from != "" && from != to
}

// renamed are the old and the new name. An alias is told by its path and given a new name; a set or a group is called as it is
// to be, beside its old name.
func (r *request) renamed() (from, to string) {
	other := r.text("rename")
	if other == "" || !strings.Contains(r.op.Path, "/firewall/") {
		return "", ""
	}
	if r.op.Method == "PUT" {
		return r.text("name"), other
	}
	return other, r.text(r.nameParam())
}

func (r *request) nameParam() string {
	if strings.HasSuffix(r.op.Path, "/groups") {
		return "group"
	}
	return "name"
}

// renameBack is the call that gives the old name again, where the request changes nothing else.
func (r *request) renameBack() gate.Undo {
	from, to := r.renamed()
	args := map[string]any{}
	for _, name := range r.op.Placeholders {
		args[name] = r.text(name)
	}
	args[r.nameParam()], args["rename"] = from, to
	if r.op.Method == "PUT" {
		args["name"], args["rename"] = to, from
		img, err := gate.LookAt(r.ctx, r.v, r.step.Target, aliasSheet(r.op.Path, args))
		if err == nil && len(img.Rows) == 0 {
			place := map[string]any{}
			for k, v := range args {
				place[k] = v
			}
			place["name"] = from
			img, err = gate.LookAt(r.ctx, r.v, r.step.Target, aliasSheet(r.op.Path, place))
		}
		if err != nil || len(img.Rows) != 1 {
			return gate.Undo{None: fmt.Sprintf("what %s is now cannot be read, so it cannot be set again; rename %s to %s to go back", from, to, from)}
		}
		for _, k := range []string{"cidr", "comment"} {
			now := shown(img.Rows[0][k])
			if set := r.text(k); set != "" && set != now || set == "" && now != "" {
				return gate.Undo{None: fmt.Sprintf("it renames and changes %s at once, which castellan does not take back together; rename %s to %s and set %s to %q to go back", k, to, from, k, clip(now, 120))}
			}
			if now != "" {
				args[k] = now
			}
		}
	} else if other := r.beside(); other != "" {
		return gate.Undo{None: fmt.Sprintf("it renames and sets %s at once, which castellan does not take back together; rename %s to %s to go back", other, to, from)}
	} else {
		img, err := gate.LookAt(r.ctx, r.v, r.step.Target, namedSheet(r.op.Path, r.nameParam(), from, args))
		if err == nil && len(img.Rows) == 1 && r.text("comment") != "" && r.text("comment") != shown(img.Rows[0]["comment"]) {
			return gate.Undo{None: fmt.Sprintf("it renames and sets comment at once, which castellan does not take back together; rename %s to %s to go back", to, from)}
		}
		if err != nil || len(img.Rows) != 1 {
			return gate.Undo{None: fmt.Sprintf("what %s is now cannot be read; rename %s to %s to go back", from, to, from)}
		}
		if text := shown(img.Rows[0]["comment"]); text != "" { // a renamed one may lose it
			args["comment"] = text
		}
	}
	req, problems := r.k.c.Catalog.Check(r.op, args)
	if len(problems) > 0 {
		return gate.Undo{None: fmt.Sprintf("castellan has no call that renames %s to %s: %v", to, from, problems[0])}
	}
	return gate.Undo{How: fmt.Sprintf("%s is named %s again", to, from), Call: &req}
}

// beside is a parameter beside the names and the comment.
func (r *request) beside() string {
	for _, p := range r.step.API.Params {
		if p.Name != "rename" && p.Name != "digest" && p.Name != "comment" && p.Name != r.nameParam() && !slices.Contains(r.op.Placeholders, p.Name) {
			return p.Name
		}
	}
	return ""
}

// namedSheet is one row of the listing of sets or groups.
func namedSheet(path, field, name string, args map[string]any) gate.Sheet {
	s := aliasSheet(path, args)
	s.Name, s.Where = strings.TrimSuffix(s.Name, "s")+" "+name, map[string]string{field: name}
	return s
}

func aliasSheet(path string, args map[string]any) gate.Sheet {
	place := map[string]string{}
	for _, name := range placeholders(path) {
		place[name] = fmt.Sprint(args[name])
	}
	if vmid := place["vmid"]; vmid != "" && place["node"] != "" {
		place["node"] = gate.NodeOf(vmid)
	}
	return gate.Sheet{Name: where(path, place), Form: gate.SheetObject, Read: gate.Read{Operation: "GET " + path, Params: place}}
}

// renamedSince refuses to give an old name when the object is not as the plan left it, and ties the step to what it is.
func (b *back) renamedSince(step *gate.Step) error {
	r := step.API
	if r.Text("rename") == "" || !strings.Contains(r.Operation, "/firewall/") {
		return nil
	}
	args := map[string]any{}
	for _, p := range r.Params {
		args[p.Name] = r.Text(p.Name)
	}
	fields, s := []string{"cidr", "comment"}, aliasSheet(pathOf(r.Operation), args)
	if strings.HasPrefix(r.Operation, "POST ") {
		field := "name"
		if r.Text("group") != "" {
			field = "group"
		}
		fields, s = []string{"comment"}, namedSheet(pathOf(r.Operation), field, r.Text("rename"), args)
	}
	now, err := b.look(s)
	if err != nil {
		return err
	}
	if len(now.Rows) == 0 {
		return fail("It cannot be renamed any more.", "%s is gone%s", s.Name, b.by(""))
	}
	for _, k := range fields {
		set, found := rawJSON(jsonText(r.Text(k))), now.Rows[0][k]
		if lost := len(s.Where) > 0 && shown(found) == ""; !lost && !same(set, found) {
			return b.conflict(s, k, set, found)
		}
		step.Require = append(step.Require, is(s, k, found))
	}
	return nil
}
