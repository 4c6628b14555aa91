package estate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"castellan/internal/gate"
)

// LockHolder names the running task that holds a guest's lock, in words; empty when none can be seen. known says whether
// the tasks of its node could be looked at.
func (*Estate) LockHolder(ctx context.Context, v gate.View, target, vmid string) (holder string, known bool) {
	inv, err := Load(ctx, v, target)
	if err != nil {
		return "", false
	}
	g, ok := inv.ByID(vmid)
	if !ok || g.NodeOff {
		return "", false
	}
	a, err := v.Read(ctx, inv.Target.Name, gate.Read{Operation: "GET /nodes/{node}/tasks", Params: map[string]string{"node": g.Node, "source": "active", "limit": "500"}})
	if err != nil {
		return "", false
	}
	var rows []struct {
		UPID  Text `json:"upid"`
		Type  Text `json:"type"`
		ID    Text `json:"id"`
		User  Text `json:"user"`
		Start Int  `json:"starttime"`
		End   Int  `json:"endtime"`
	}
	if json.Unmarshal(a.Data, &rows) != nil {
		return "", false
	}
	for _, r := range rows {
		if r.End == 0 && (string(r.ID) == vmid || r.ID == "" && r.Type == "vzdump") {
			return fmt.Sprintf("task %s (%s by %s, since %s)", r.UPID, r.Type, r.User, time.Unix(int64(r.Start), 0).UTC().Format(time.RFC3339)), true
		}
	}
	return "", true
}
