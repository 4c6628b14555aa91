package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
	notices "castellan/internal/notify"
)

// scheduleEvery is how often the daemon looks whether a window has opened.
const scheduleEvery = 20 * time.Second

// runSchedules makes the calls of mandates with a schedule, and tells people what became of them.
func (d *daemon) runSchedules(agents map[string]string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		d.house.gate.AwaitRunning()
		every(ctx, scheduleEvery, func(ctx context.Context) {
			runs, err := d.house.gate.Schedules(ctx, func(_ context.Context, key string) (gate.Principal, error) { return d.callerOf(agents, key) })
			if err != nil && ctx.Err() == nil {
				d.log.Warn("look for schedules", "error", err)
			}
			for _, r := range runs {
				agent, person, _ := strings.Cut(r.For, "|")
				d.log.Info("schedule", "mandate", r.Mandate, "operation", r.Operation, "state", string(r.State), "plan", r.Plan)
				d.teller.tell(notices.Notice{Kind: "schedule", State: string(r.State), Operation: r.Operation, Plan: r.Plan, Agent: agent, Person: person, At: r.At, From: r.From, Until: r.To})
			}
		})
		return nil
	}
}

// callerOf is who a mandate is for, as that one would come in: an agent of this machine by its socket, another with a token, a
// person signed in. What is left of that access the gate asks before anything is done with it.
func (d *daemon) callerOf(agents map[string]string, key string) (gate.Principal, error) {
	agent, person, _ := strings.Cut(key, "|")
	who := gate.Principal{Agent: agent, Person: person, WayIn: "schedule", Client: "castellan's schedule"}
	for account, name := range agents {
		if agent != "" && name == agent && account == person {
			who.Strength = gate.StrengthPeer
			return who, nil
		}
	}
	who.Strength = gate.StrengthToken
	if agent == "" {
		who.Strength = gate.StrengthSession
	}
	who.Roles = append([]string{gate.RoleViewer, gate.RoleOperator}, slices.Sorted(maps.Keys(d.set.Policy.Roles))...)
	return who, nil
}
