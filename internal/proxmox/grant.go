package proxmox

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"castellan/internal/gate"
	"castellan/internal/rights"
)

// grantHint says which right is missing and by which commands it is given. The role is made of exactly the
// privileges that the server named: no version of the product can refuse one that it asks for itself. held is what the login has
// on a path, where that can be read.
func grantHint(kind, login, message string, hints []string, held func(path string) (map[string]bool, bool)) string {
	who, isToken := login, strings.Contains(login, "!")
	path, privileges := missingRight(message, hints)
	var b strings.Builder
	fmt.Fprintf(&b, "The privilege is missing on the side of Proxmox, not in castellan's policy: %s", who)
	switch {
	case len(privileges) == 0:
		b.WriteString(" may not do this; the server does not say what it asks for.")
		return b.String()
	case path == "":
		fmt.Fprintf(&b, " needs %s.", strings.Join(privileges, " or "))
	default:
		fmt.Fprintf(&b, " needs %s on %s.", strings.Join(privileges, " or "), path)
	}
	if kind != kindPVE || path == "" {
		return b.String()
	}
	there, known := held(path)
	b.WriteString(" An administrator gives it with: " + rights.Joined(rights.Give(who, path, privileges[:1], there)))
	if isToken {
		b.WriteString(" (a token with privilege separation has only what both its user and it were given).")
	} else {
		b.WriteString(".")
	}
	if !known && path != "/" {
		b.WriteString(" " + rights.Unkept)
	}
	return b.String()
}

// heldAt asks what the login has on a path.
func (k *call) heldAt(ctx context.Context, path string) (map[string]bool, bool) {
	if k.t.link == nil {
		return nil, false
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer stop()
	_, answer, fail := k.t.ask(ctx, k.t.link.order()[0], "/access/permissions", "path="+url.QueryEscape(path))
	if fail != nil {
		return nil, false
	}
	all, err := rights.ReadPermissions(answer.Data)
	return all[path], err == nil
}

// missingRight reads "Permission check failed (/vms/200, VM.Audit|VM.Config)", or takes what the catalogue knows of
// the call ("VM.Audit on /vms/200") where the text names nothing.
func missingRight(message string, hints []string) (path string, privileges []string) {
	re := regexp.MustCompile(`\((/[^\s,()]*|),\s*([A-Za-z][\w.]*(?:\|[A-Za-z][\w.]*)*)\)`)
	if m := re.FindStringSubmatch(message); m != nil {
		return m[1], strings.Split(m[2], "|")
	}
	for _, h := range hints {
		priv, at, ok := strings.Cut(h, " on ")
		if !ok || !regexp.MustCompile(`^[A-Za-z][\w.]*$`).MatchString(priv) {
			continue
		}
		if path == "" || path == at {
			path, privileges = at, append(privileges, priv)
		}
	}
	if strings.ContainsAny(path, "{}") {
		path = ""
	}
	return path, privileges
}

// poolMissing tells the one 403 that is no missing right.
func poolMissing(e *gate.UpstreamError) bool {
	return e.Status == 403 && regexp.MustCompile(`'[^']+' does not exist`).MatchString(e.Message)
}
