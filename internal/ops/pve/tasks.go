package pve

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// taskRow is a task in a list, where status is the exit status.
type taskRow struct {
	UPID   estate.Text `json:"upid"`
	Type   estate.Text `json:"type"`
	ID     estate.Text `json:"id"`
	Node   estate.Text `json:"node"`
	User   estate.Text `json:"user"`
	Token  estate.Text `json:"tokenid"`
	Start  estate.Int  `json:"starttime"`
	End    estate.Int  `json:"endtime"`
	Status estate.Text `json:"status"`
}

func (r taskRow) ended() bool { return r.End != 0 }

// state sorts an exit status: what ended without one is unknown, never ok.
func taskState(ended bool, exit string) string {
	switch {
	case !ended:
		return "running"
	case exit == "OK":
		return "ok"
	case strings.HasPrefix(exit, "WARNINGS"):
		return "warnings"
	case exit == "" || exit == "unexpected status" || exit == "unknown":
		return "unknown"
	}
	return "failed"
}

func (r taskRow) state() string { return taskState(r.ended(), string(r.Status)) }

func (r taskRow) who() string {
	if r.Token != "" && !strings.Contains(string(r.User), "!") {
		return string(r.User) + "!" + string(r.Token)
	}
	return string(r.User)
}

// upid is a task's id taken apart: UPID:node:pid:pstart:starttime:type:id:user:
type upid struct {
	node, kind, id, user string
	start                time.Time
}

func parseUPID(s string) (upid, error) {
	f := strings.Split(s, ":")
	bad := gate.Fail(gate.ErrInvalid, "Give the whole id as list_tasks or a receipt shows it, from UPID: to the last colon.", "%q is no task id", clip(s, 80))
	if len(f) < 9 || f[0] != "UPID" || f[1] == "" || f[len(f)-1] != "" {
		return upid{}, bad
	}
	start, err := strconv.ParseInt(f[4], 16, 64)
	if err != nil {
		return upid{}, bad
	}
	// the id of some types holds colons; the user does not
	return upid{node: f[1], kind: f[5], id: strings.Join(f[6:len(f)-2], ":"), user: f[len(f)-2], start: time.Unix(start, 0).UTC()}, nil
}

func stamp(unix int64) string {
	if unix <= 0 {
		return ""
	}
	return time.Unix(unix, 0).UTC().Format(time.RFC3339)
}

func span(seconds int64) string {
	return (time.Duration(seconds) * time.Second).String()
}

func percent(part, whole int64) string {
	if whole <= 0 {
		return ""
	}
	return strconv.FormatFloat(float64(part)*100/float64(whole), 'f', 1, 64) + " %"
}

func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
