package proxmox

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"castellan/internal/regex"
)

var (
	remoteForm = &regex.Lazy{Expr: `^[A-Za-z0-9_][A-Za-z0-9._-]*$`}
	nodeForm   = &regex.Lazy{Expr: `^[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?$`}
)

// UPID is the name of a task, in any of the forms of the four products.
type UPID struct {
	Text    string // as given
	Remote  string // the remote of a PDM, "" for a task of the target itself
	Product string // "pve" or "pbs" beside Remote; otherwise "" (PVE and PMG share a form, so do PBS and PDM)
	Long    bool   // PBS and PDM: holds a task number as well
	Node    string
	PID     uint64
	PStart  uint64
	TaskID  uint64 // PBS and PDM
	Started time.Time
	Type    string
	ID      string // may be empty, or hold @ and file names
	User    string // with !token
}

// ParseUPID reads "UPID:node:pid:pstart:start:type:id:user:" (PVE, PMG), the same with a task number before start
// (PBS, PDM), and "pve:REMOTE!UPID:…" (tasks of a remote, told by PDM).
func ParseUPID(text string) (UPID, error) {
	u := UPID{Text: text}
	bare := text
	if len(text) > 1024 {
		return UPID{}, fmt.Errorf("read task id: it is %d bytes long", len(text))
	}
	if prefix, rest, ok := strings.Cut(text, "!UPID:"); ok && !strings.HasPrefix(text, "UPID:") {
		product, remote, ok := strings.Cut(prefix, ":")
		if !ok || product != kindPVE && product != kindPBS || !remoteForm.MatchString(remote) {
			return UPID{}, fmt.Errorf("read task id %q: what stands before the UPID is not pve:REMOTE! or pbs:REMOTE!", clip(text))
		}
		u.Product, u.Remote, bare = product, remote, "UPID:"+rest
	}
	parts := strings.Split(bare, ":")
	if (len(parts) != 9 && len(parts) != 10) || parts[0] != "UPID" || parts[len(parts)-1] != "" {
		return UPID{}, fmt.Errorf("read task id %q: it is not of the form UPID:node:…:user:", clip(text))
	}
	u.Long = len(parts) == 10
	if u.Product == kindPVE && u.Long || u.Product == kindPBS && !u.Long {
		return UPID{}, fmt.Errorf("read task id %q: its form is not that of a %s task", clip(text), u.Product)
	}
	if !nodeForm.MatchString(parts[1]) {
		return UPID{}, fmt.Errorf("read task id %q: %q is not a node", clip(text), clip(parts[1]))
	}
	u.Node = parts[1]
	hexes := []struct {
		into     *uint64
		min, max int
	}{{&u.PID, 8, 8}, {&u.PStart, 8, 9}}
	var start uint64
	if u.Long {
		hexes = append(hexes, struct {
			into     *uint64
			min, max int
		}{&u.TaskID, 8, 16})
	}
	hexes = append(hexes, struct {
		into     *uint64
		min, max int
	}{&start, 8, 8})
	at := 2
	for _, h := range hexes {
		part := parts[at]
		v, err := strconv.ParseUint(part, 16, 64)
		if err != nil || len(part) < h.min || len(part) > h.max || strings.ContainsAny(part, "+-_") {
			return UPID{}, fmt.Errorf("read task id %q: %q is not one of its hexadecimal numbers", clip(text), clip(part))
		}
		*h.into = v
		at++
	}
	u.Started = time.Unix(int64(start), 0).UTC()
	u.Type, u.ID, u.User = parts[at], parts[at+1], parts[at+2]
	if u.Type == "" || u.User == "" || strings.ContainsFunc(u.Type+u.ID+u.User, func(r rune) bool { return r <= ' ' || r == 0x7f || r == 0xfffd || r == 0x85 || r == 0xa0 }) {
		return UPID{}, fmt.Errorf("read task id %q: type or user is missing, or holds a blank", clip(text))
	}
	return u, nil
}

// String gives the text back.
func (u UPID) String() string { return u.Text }

func clip(s string) string { return clean(s, 120) }
