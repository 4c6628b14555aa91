package pve

import (
	"context"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

type applySDNIn struct {
	Target string `json:"target,omitempty"`
}

func applySDN() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "apply_sdn", Summary: "Bring all staged SDN changes into force on every node, under SDN's lock. Write, no undo", Product: "pve", Effect: gate.EffectDestroy,
		Kinds: []gate.Kind{gate.KindLock, gate.KindNet, gate.KindSout, gate.KindCfgdel}, Undo: "none: stage the old settings and apply again", Keywords: "zones vnets subnets software defined network reload pending commit",
		Toolset: "full", Bounded: true,
	}, planApplySDN)
}

// planApplySDN holds SDN's lock from before the last look at what is staged until it is in force: nobody can stage more in
// between. A site before PVE 9 has no such lock.
func planApplySDN(ctx context.Context, v gate.View, in applySDNIn) (*gate.Draft, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	apply := map[string]any{}
	d := &gate.Draft{Target: s.target(), Phrase: s.target()}
	step := func(operation string, params map[string]any) (*gate.Step, error) {
		r, err := gate.NewRequest("pve", operation, params)
		if err != nil {
			return nil, err
		}
		d.Steps = append(d.Steps, gate.Step{API: &r})
		return &d.Steps[len(d.Steps)-1], nil
	}
	locks := !estate.Before9(ctx, v, s.inv.Target)
	token := gate.Ref{Step: 1, Plan: "the token that step 1 returns"}
	if locks {
		lock, err := step("POST /cluster/sdn/lock", map[string]any{"allow-pending": true})
		if err != nil {
			return nil, err
		}
		lock.Undo = gate.Undo{How: "the last step, or DELETE /cluster/sdn/lock, gives it back"}
		apply["lock-token"], apply["release-lock"] = token, true
	}
	put, err := step("PUT /cluster/sdn", apply)
	if err != nil {
		return nil, err
	}
	put.Wait = gate.Wait{Kind: gate.WaitTask, Limit: 10 * time.Minute}
	put.Undo.None = "the settings before it are not kept: stage the old ones and apply again"
	put.Verify = []gate.Condition{answers()}
	if locks {
		back, err := step("DELETE /cluster/sdn/lock", map[string]any{"lock-token": token})
		if err != nil {
			return nil, err
		}
		back.When = gate.When{CheckFailed: 2}
		back.Undo.None = "it is the release of the lock"
	} else {
		d.Note = "This version has no lock for its network: what others stage between the last look and the apply comes into force too."
	}
	return d, nil
}
