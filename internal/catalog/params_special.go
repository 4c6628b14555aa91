package catalog

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"castellan/internal/catalog/facts"
	"castellan/internal/regex"
)

// The rules here are about what callers get wrong with particular parameters, and the products answer badly.

// alwaysShared are the storage types that are shared by nature: the product refuses to be told so.
var alwaysShared = []string{"nfs", "cifs", "pbs", "rbd", "cephfs", "glusterfs", "iscsi", "iscsidirect", "esxi"}

// adjust changes arguments before they are checked.
func (k *checker) adjust() {
	if k.op.Product == "pve" && k.op.ID == "POST /storage" {
		t, _ := plainText(k.given["type"])
		if v, given := k.given["shared"]; given && slices.Contains(alwaysShared, t) {
			text, _ := plainText(v)
			if on, probs := boolean(field{name: "shared"}, text); len(probs) == 0 && on == "1" {
				delete(k.given, "shared")
				k.note("shared is left out: a storage of type %s is always shared, and the product refuses to be told so", t)
			} else {
				k.fail(Problem{Param: "shared", Message: fmt.Sprintf("a storage of type %s is always shared; leave it out", t)})
			}
		}
	}
}

// refused names parameters that the published description shows but that no caller may send.
func (k *checker) refused(name string) *Problem {
	if name == "tmpfilename" && k.op.Facts.Params["filename"] != nil {
		return &Problem{Param: name, Message: "is internal to the product; give filename and the content"}
	}
	return nil
}

var (
	exprNewDisk   = &regex.Lazy{Expr: `\A(` + exprStorage + `):([0-9]+(?:\.[0-9]+)?)([KMGTkmgt])(?:[iI]?[bB])?\z`}
	exprGrowDisk  = &regex.Lazy{Expr: `\A` + exprStorage + `:\+`}
	exprSizeWord  = &regex.Lazy{Expr: `\A\+?[0-9]+(?:\.[0-9]+)?\s*[KMGTkmgt](?:[iI]?[bB])?\z`}
	exprPlainSize = &regex.Lazy{Expr: `\A\+?[0-9]+(?:\.[0-9]+)?\z`}
)

// exprACLPath is stricter than PVE, which adds a missing first slash and drops doubled ones.
var exprACLPath = &regex.Lazy{Expr: `\A/(?:|access(?:/groups|/realm|/users)?(?:/[^\s/]+)?|nodes(?:/` + exprLabel + `)?|vms(?:/[1-9][0-9]{2,8})?|` +
	`pool(?:/` + exprName + `){0,3}|storage(?:/` + exprName + `)?|` +
	`sdn(?:/[a-z-]+(?:/[A-Za-z0-9._-]+){0,3})?|mapping(?:/[a-z]+(?:/[A-Za-z0-9._-]+)?)?)\z`}

// special checks and converts values whose form depends on the operation.
func (k *checker) special(f field, text string) (string, []Problem) {
	switch {
	case k.op.Product == "pve" && f.template == "path" && (k.op.Path == "/access/acl" || k.op.Path == "/access/permissions") && !exprACLPath.MatchString(text):
		return "", f.bad("%s is not a path of access control such as /vms/100, /pool/dev, /storage/local, /nodes/pve1 or /", f.show(text))
	case f.template == "upid" && !exprUPID.MatchString(text):
		return "", f.bad("%s is not a task id (UPID:node:...)", f.show(text))
	case k.op.Product != "pve" && k.op.Product != "pdm":
	case isDiskKey(f.template):
		return k.newDisk(f, text)
	case f.template == "size" && strings.HasSuffix(k.op.Path, "/resize"):
		if exprPlainSize.MatchString(text) {
			return "", []Problem{{Param: f.name, Message: f.show(text) + " without a unit counts bytes", Nearest: text + "G"}}
		}
	}
	return text, nil
}

// nestedSecrets refuses secrets inside nested calls: who approves must be able to read such a call, and what they read
// is kept.
func (k *checker) nestedSecrets() {
	for name, values := range k.values {
		s, _, ok := k.op.Schema(name)
		if !ok || s.Format == nil || s.Format.Name != "pve-command-batch" {
			continue
		}
		for _, v := range values {
			calls, _ := jsonArray(v.Text)
			for _, c := range calls {
				call, _ := c.(map[string]any)
				args, _ := call["args"].(map[string]any)
				for key := range args {
					if mayBeSecret(key) {
						k.fail(Problem{Param: name, Message: "the argument " + quote(key) + " of a nested call is secret, and nothing in a nested call can be sealed: make that call by itself"})
					}
				}
			}
		}
	}
}

// conflicts checks what the product says of several parameters at once, only in its code.
func (k *checker) conflicts() {
	if k.op.Product != "pve" {
		return
	}
	given := func(names ...string) (have []string) {
		for _, n := range names {
			if v := k.values[n]; len(v) > 0 && !(n == "all" && v[0].Text == "0") {
				have = append(have, n)
			}
		}
		return have
	}
	switch {
	case strings.HasSuffix(k.op.Path, "/vzdump") || strings.HasPrefix(k.op.Path, "/cluster/backup"):
		if k.op.Facts.Params["pool"] == nil || k.op.Method == "GET" {
			return
		}
		if have := given("vmid", "pool", "all"); len(have) > 1 {
			k.fail(Problem{Param: have[0], Message: "only one of vmid, pool and all may be given"})
		} else if _, tried := k.given["vmid"]; len(have) == 0 && k.op.Method == "POST" && !tried {
			k.fail(Problem{Param: "vmid", Message: "name the guests: vmid, pool or all is needed"})
		}
	case strings.Contains(k.op.Path, "/firewall/") && k.op.Facts.Params["dport"] != nil && k.op.Method == "POST":
		if have := given("dport", "sport"); len(have) > 0 && len(given("proto")) == 0 && k.given["macro"] == nil {
			k.fail(Problem{Param: "proto", Message: "is needed where " + have[0] + " is given"})
		}
		action, kind := k.values["action"], k.values["type"]
		words := []string{"ACCEPT", "DROP", "REJECT"}
		if len(action) == 1 && len(kind) == 1 && kind[0].Text != "group" && !slices.Contains(words, action[0].Text) {
			k.fail(Problem{Param: "action", Message: quote(action[0].Text) + " is no action for a rule of this type", Nearest: nearest(action[0].Text, words), Valid: words})
		}
	}
}

// isDiskKey tells the keys that name a volume, or ask for a new one as storage:GiB.
func isDiskKey(template string) bool {
	return strings.HasSuffix(template, "[n].file") || strings.HasSuffix(template, "[n].volume") ||
		slices.Contains([]string{"rootfs.volume", "efidisk0.file", "tpmstate0.file"}, template)
}

// newDisk turns storage:32G into storage:32, which is how a new volume is asked for.
func (k *checker) newDisk(f field, text string) (string, []Problem) {
	if exprGrowDisk.MatchString(text) {
		storage, size, _ := strings.Cut(text, ":+")
		return "", []Problem{{Param: f.name, Message: "growing a disk is done by resize; a new one is asked for by its size in GiB", Nearest: storage + ":" + strings.TrimRight(size, "KMGTkmgtiIbB")}}
	}
	m := exprNewDisk.FindStringSubmatch(text)
	if m == nil {
		return text, nil
	}
	n, _ := new(big.Rat).SetString(m[2])
	unit := map[string]*big.Rat{"K": big.NewRat(1, 1<<20), "M": big.NewRat(1, 1<<10), "G": big.NewRat(1, 1), "T": big.NewRat(1<<10, 1)}[strings.ToUpper(m[3])]
	n.Mul(n, unit)
	size := strings.TrimRight(n.FloatString(10), "0")
	size = strings.TrimSuffix(size, ".")
	if back, ok := new(big.Rat).SetString(size); !ok || back.Cmp(n) != 0 || n.Sign() <= 0 {
		return "", f.bad("%s cannot be written in GiB, which is how a new volume is asked for (storage:32)", f.show(text))
	}
	k.note("%s: %s is sent as %s:%s, since a new volume is asked for in GiB", f.name, text, m[1], size)
	return m[1] + ":" + size, nil
}

// prepare converts what callers write otherwise than the product reads it, before the form is checked.
func (k *checker) prepare(f field, s *facts.Schema, text string) string {
	format := ""
	if s.Format != nil {
		format = s.Format.Name
	}
	switch {
	case format == "urlencoded" && !isURLEncoded(text):
		k.note("%s is percent-encoded inside its value, as the product wants it", f.name)
		return escape(text)
	case format == "pve-command-batch":
		if v, err := strictJSON(text); err == nil {
			if b, err := json.Marshal(v); err == nil {
				return string(b)
			}
		}
	case format == "disk-size", f.template == "size" && strings.HasSuffix(k.op.Path, "/resize"):
		return presize(text)
	}
	return text
}

func isURLEncoded(text string) bool {
	_, err := formatChecks()["urlencoded"](text)
	return err == nil
}

// presize reads sizes the way people write them: 32GB, 32 G, +32g.
func presize(text string) string {
	if !exprSizeWord.MatchString(text) {
		return text
	}
	i := strings.IndexAny(text, "KMGTkmgt")
	return strings.TrimSpace(text[:i]) + strings.ToUpper(text[i:i+1])
}
