package catalog

import (
	"slices"
	"sort"
	"strings"

	"castellan/internal/catalog/facts"
	"castellan/internal/gate"
	"castellan/internal/regex"
)

// reference returns what a parameter or property-string key refers to and how the request uses it.
func (op *Operation) reference(template string, s *facts.Schema) (refKind, gate.Use) {
	if known, ok := op.known.refers.Load(template); ok {
		r := known.(referral)
		return r.kind, r.use
	}
	kind, use := op.readReference(template, s)
	if op.describes(template) {
		op.known.refers.Store(template, referral{kind, use})
	}
	return kind, use
}

type referral struct {
	kind refKind
	use  gate.Use
}

func (op *Operation) readReference(template string, s *facts.Schema) (refKind, gate.Use) {
	name := leaf(template)
	last := name[strings.LastIndexByte(name, '.')+1:]
	inPath := slices.Contains(op.Placeholders, template)
	for _, r := range refRules {
		if (r.product == "" || r.product == op.Product) && (r.path == "" || strings.Contains(op.Path+"/", r.path)) && leaf(r.param) == name {
			return r.kind, op.use(r.kind, r.use, template, inPath)
		}
	}
	if s != nil && s.Format != nil && s.Format.Name != "" {
		base := strings.TrimSuffix(strings.TrimSuffix(s.Format.Name, "-list"), "-opt")
		if k, ok := refFormats[base]; ok {
			return k, op.use(k, "", template, inPath)
		}
	}
	if k, ok := refNames[name]; ok {
		return k, op.use(k, "", template, inPath)
	}
	if k, ok := refNames[last]; ok {
		return k, op.use(k, "", template, inPath)
	}
	if last == "target" && op.Product == "pdm" {
		return refRemote, gate.UseNames
	}
	return "", ""
}

// use says how a request uses what a parameter names. The thing that the path ends at is acted on; what stands
// before it in the path, and storages, nodes and bridges among the parameters, are only named.
func (op *Operation) use(kind refKind, reviewed gate.Use, template string, inPath bool) gate.Use {
	switch {
	case kind == "":
		return ""
	case reviewed != "":
		return reviewed
	case inPath && (kind == refNode || kind == refStorage || kind == refRemote):
		if op.deepest() == template {
			return gate.UseActs
		}
		return gate.UseNames
	case inPath:
		return gate.UseActs
	}
	switch kind {
	case refGuest, refHA, refJob, refPool, refUser, refToken, refTag, refACL, refBatch, refAll:
		return gate.UseActs
	case refBridge, refZone:
		if strings.HasSuffix(op.Path, "/network") || op.Product == "pve" && strings.HasPrefix(op.Path, "/cluster/sdn/") {
			return gate.UseActs
		}
	}
	return gate.UseNames
}

// deepest is the last placeholder of the path that names an object of its own.
func (op *Operation) deepest() string {
	for i := len(op.Placeholders) - 1; i >= 0; i-- {
		name := op.Placeholders[i]
		if k := refNames[name]; k != "" && k != refToken {
			return name
		}
	}
	return ""
}

// References lists every object that a request acts on or names, in a fixed order. A write that names none acts on
// the whole site; a value that cannot be resolved is ObjectUnknown.
func (c *Catalog) References(op *Operation, r gate.Request) []gate.Reference {
	w := &refWalk{cat: c, op: op, request: r, site: siteOf(op, r)}
	for _, p := range r.Params {
		s, template, ok := op.Schema(p.Name)
		if !ok {
			w.add(gate.ObjectUnknown, "", p.Name, gate.UseActs)
			continue
		}
		for _, v := range p.Values {
			w.value(p.Name, template, s, v)
		}
	}
	w.implied()
	w.demoteNode()
	sort.SliceStable(w.out, func(i, j int) bool {
		a, b := w.out[i], w.out[j]
		if a.Param != b.Param {
			return a.Param < b.Param
		}
		return a.Object.String() < b.Object.String()
	})
	return slices.Compact(w.out)
}

// siteOf is the remote of a PDM operation that passes through to one.
func siteOf(op *Operation, r gate.Request) string {
	if op.Product == "pdm" && slices.Contains(op.Placeholders, "remote") {
		return r.Text("remote")
	}
	return ""
}

type refWalk struct {
	cat     *Catalog
	op      *Operation
	request gate.Request
	site    string
	out     []gate.Reference
}

func (w *refWalk) add(kind gate.ObjectKind, id, param string, use gate.Use) {
	o := gate.Object{Site: w.site, Kind: kind, ID: id}
	w.out = append(w.out, gate.Reference{Object: o, Param: param, Use: use})
}

// value adds what one value of a parameter refers to.
func (w *refWalk) value(name, template string, s *facts.Schema, v gate.Value) {
	item := s
	if s.Type == "array" && s.Items != nil {
		item = s.Items
	} else if s.Type == "array" && len(s.OneOf) > 0 && s.OneOf[0].Items != nil {
		item = s.OneOf[0].Items
	}
	kind, use := w.op.reference(template, item)
	text := v.Text
	if v.Ref != nil {
		text = v.Ref.Plan
	}
	if v.Secret != nil {
		text = v.Secret.Before + "sealed" + v.Secret.After
	}
	if p := w.op.properties(item); p != nil {
		w.keys(name, template, p, text)
		if kind == "" || kind == refRemote {
			return
		}
		if len(p.props) > 0 {
			return
		}
	}
	if item.Type == "object" {
		w.object(name, template, item, text)
		return
	}
	if kind == "" {
		return
	}
	if text == "" {
		w.add(gate.ObjectUnknown, "", name, use)
		return
	}
	if kind == refTag || kind == refBatch || kind == refACL || len(gate.SplitList(text)) <= 1 {
		w.one(kind, name, text, use)
		return
	}
	for _, e := range gate.SplitList(text) {
		w.one(kind, name, e, use)
	}
}

// keys walks a property string.
func (w *refWalk) keys(name, template string, p *propSchema, text string) {
	props, prob := p.parse(text)
	if prob != nil {
		w.add(gate.ObjectUnknown, "", name, gate.UseActs)
		return
	}
	for _, kv := range props {
		kt := template + "." + kv.Key
		if template == "target-endpoint" && kv.Key == "host" {
			w.add(gate.ObjectSite, kv.Value, name+".host", gate.UseNames)
			continue
		}
		kind, use := w.op.reference(kt, p.props[kv.Key])
		if kind == "" {
			continue
		}
		for _, e := range gate.SplitList(kv.Value) {
			w.one(kind, name+"."+kv.Key, e, use)
		}
	}
}

// object walks a true JSON object.
func (w *refWalk) object(name, template string, s *facts.Schema, text string) {
	o, err := jsonObject(text)
	if err != nil {
		w.add(gate.ObjectUnknown, "", name, gate.UseActs)
		return
	}
	w.members(name, template, s, o, 0)
}

func (w *refWalk) members(name, template string, s *facts.Schema, o map[string]any, depth int) {
	if depth > maxDepth {
		w.add(gate.ObjectUnknown, "", name, gate.UseActs)
		return
	}
	for key, v := range o {
		ks := s.Properties[key]
		if ks == nil {
			continue
		}
		kn, kt := name+"."+key, template+"."+key
		switch x := v.(type) {
		case map[string]any:
			w.members(kn, kt, ks, x, depth+1)
		case []any:
			for _, e := range x {
				if m, ok := e.(map[string]any); ok && ks.Items != nil {
					w.members(kn, kt, ks.Items, m, depth+1)
				}
			}
		default:
			if kind, use := w.op.reference(kt, ks); kind != "" {
				text, _ := plainText(x)
				w.one(kind, kn, text, use)
			}
		}
	}
}

var (
	volumeGuest = &regex.Lazy{Expr: `(?:^|[/:-])(?:vm|base|subvol|basevol)-([1-9][0-9]{2,8})-`}
	backupGuest = &regex.Lazy{Expr: `vzdump-(?:qemu|lxc|openvz)-([1-9][0-9]{2,8})-`}
	folderGuest = &regex.Lazy{Expr: `(?:^|[:/])([1-9][0-9]{2,8})/`}
	pbsGuest    = &regex.Lazy{Expr: `(?:^|[:/])(?:vm|ct)/([1-9][0-9]{2,8})(?:/|$)`}
	newVolume   = &regex.Lazy{Expr: `\A[0-9]+(?:\.[0-9]+)?\z`}
	plainGuest  = &regex.Lazy{Expr: `\A[1-9][0-9]{2,8}\z`}
)

// volume adds a volume, its storage, and every guest that its name gives it to.
func (w *refWalk) volume(param, text string, use gate.Use) {
	if text == "none" || text == "cdrom" {
		return
	}
	if strings.HasPrefix(text, "/") { // a path of the host: anything
		w.add(gate.ObjectUnknown, text, param, use)
		return
	}
	storage, rest, named := strings.Cut(text, ":")
	if !named {
		storage, rest = w.request.Text("storage"), text
		if !slices.Contains(w.op.Placeholders, "storage") {
			w.add(gate.ObjectUnknown, text, param, use)
			return
		}
	}
	w.add(gate.ObjectStorage, storage, param, gate.UseNames)
	if newVolume.MatchString(rest) && named { // a new volume of that many GiB
		return
	}
	w.add(gate.ObjectVolume, storage+":"+rest, param, use)
	for _, id := range volumeGuests(rest) {
		w.add(gate.ObjectGuest, id, param, use)
	}
}

// volumeGuests finds the ids of the guests to which a volume's name says it belongs.
func volumeGuests(volume string) []string {
	var ids []string
	for _, re := range []*regex.Lazy{volumeGuest, backupGuest, folderGuest, pbsGuest} {
		for _, m := range re.FindAllStringSubmatch(volume, -1) {
			if !slices.Contains(ids, m[1]) {
				ids = append(ids, m[1])
			}
		}
	}
	slices.Sort(ids)
	return ids
}
