package reach

import (
	"slices"
	"strings"

	"castellan/internal/gate"
)

// What a change of access is made to, as detail "is" of a change.
const (
	isACL   = "acl"
	isUser  = "user"
	isGroup = "group"
	isRole  = "role"
	isRealm = "realm"
	isToken = "token"
	isPass  = "password"
	isTFA   = "tfa"
	isPool  = "pool"
)

// given reads a request's parameters as text; repeated values are joined, secrets are not shown.
func given(r gate.Request) map[string]string {
	out := map[string]string{}
	for _, p := range r.Params {
		var texts []string
		for _, v := range p.Values {
			switch {
			case v.Secret != nil:
				texts = append(texts, v.Secret.Before+"…"+v.Secret.After)
			case v.Ref != nil:
				texts = append(texts, v.Ref.Plan)
			default:
				texts = append(texts, v.Text)
			}
		}
		out[p.Name] = strings.Join(texts, ",")
	}
	return out
}

// list splits a list as Proxmox does.
func list(text string) []string { return gate.SplitList(text) }

// settings are the parameters of an update that are neither path nor machinery; what it takes away is there as "".
func settings(r gate.Request, except ...string) map[string]string {
	out := map[string]string{}
	for name, text := range given(r) {
		switch {
		case name == "delete":
			for _, key := range list(text) {
				out[key] = ""
			}
		case name == "digest" || name == "lock-token" || strings.Contains(r.Operation, "{"+name+"}") || slices.Contains(except, name):
		default:
			out[name] = text
		}
	}
	return out
}

func readAccess(_ *walk, r gate.Request) ([]change, bool) {
	method, path, _ := strings.Cut(r.Operation, " ")
	if r.Product != "pve" || !strings.HasPrefix(path, "/access/") && !strings.HasPrefix(path, "/pools") && !strings.HasPrefix(path, "/cluster/jobs/realm-sync") {
		return nil, false
	}
	p := given(r)
	one := func(v verb, kind gate.ObjectKind, id, is string) ([]change, bool) {
		return []change{{verb: v, object: object(kind, id), keys: p, detail: map[string]string{"is": is, "method": method}}}, true
	}
	removing := func(is, id string) ([]change, bool) {
		switch method {
		case "DELETE":
			return one(revokes, gate.ObjectUser, id, is)
		case "POST":
			return one(grants, gate.ObjectUser, id, is)
		}
		return one(grants, gate.ObjectUser, id, is) // an update may give and take: both are looked at
	}
	switch path {
	case "/access/acl":
		v := grants
		if p["delete"] == "1" {
			v = revokes
		}
		return one(v, gate.ObjectACL, p["path"], isACL)
	case "/access/users", "/access/users/{userid}":
		return removing(isUser, p["userid"])
	case "/access/users/{userid}/unlock-tfa":
		return one(nothing, gate.ObjectUser, p["userid"], isUser)
	case "/access/users/{userid}/token/{tokenid}":
		return removing(isToken, p["userid"]+"!"+p["tokenid"])
	case "/access/groups", "/access/groups/{groupid}":
		return removing(isGroup, p["groupid"])
	case "/access/roles", "/access/roles/{roleid}":
		return removing(isRole, p["roleid"])
	case "/access/domains", "/access/domains/{realm}":
		if method == "POST" || method == "PUT" && len(settings(r, "comment", "default")) == 0 {
			return one(nothing, gate.ObjectUser, p["realm"], isRealm)
		}
		return one(revokes, gate.ObjectUser, p["realm"], isRealm)
	case "/access/domains/{realm}/sync":
		if p["dry-run"] == "1" {
			return one(nothing, gate.ObjectUser, p["realm"], isRealm)
		}
		return one(alters, gate.ObjectUser, p["realm"], isRealm)
	case "/cluster/jobs/realm-sync/{id}":
		if method == "DELETE" || p["enabled"] == "0" {
			return one(nothing, gate.ObjectUser, p["realm"], isRealm)
		}
		return one(alters, gate.ObjectUser, p["realm"], isRealm)
	case "/access/password":
		return one(revokes, gate.ObjectUser, p["userid"], isPass)
	case "/access/tfa/{userid}", "/access/tfa/{userid}/{id}":
		return one(revokes, gate.ObjectUser, p["userid"], isTFA)
	case "/pools", "/pools/{poolid}":
		if method == "POST" {
			return one(nothing, gate.ObjectPool, p["poolid"], isPool)
		}
		v := grants
		if method == "DELETE" || p["delete"] == "1" {
			v = revokes
		}
		return one(v, gate.ObjectPool, p["poolid"], isPool)
	case "/access/ticket", "/access/vncticket", "/access/openid/auth-url", "/access/openid/login":
		return one(nothing, gate.ObjectUser, p["username"], isUser)
	}
	return nil, false
}
