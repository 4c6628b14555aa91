package backups

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
)

// withPBS is a simulated site whose backup server is a target of its own.
type withPBS struct {
	*labView
	answers map[string]string // "store ns" → groups
	spaces  string
}

func (v withPBS) Targets() []gate.TargetInfo {
	return append(v.labView.Targets(), gate.TargetInfo{Name: "vault", Product: "pbs", Addresses: []string{"10.10.10.30:8007"}})
}

func (v withPBS) Read(ctx context.Context, target string, r gate.Read) (gate.Answer, error) {
	if target != "vault" {
		return v.labView.Read(ctx, target, r)
	}
	args := map[string]any{}
	for k, x := range r.Params {
		args[k] = x
	}
	req, problems := v.guide.Check("pbs", r.Operation, args)
	if len(problems) > 0 {
		return gate.Answer{}, fmt.Errorf("read %s: %v", r.Operation, problems)
	}
	if j := v.guide.Judge(req); j.Effect != gate.EffectRead {
		v.tb.Errorf("%s is no read", r.Operation)
	}
	switch r.Operation {
	case "GET /admin/datastore":
		return gate.Answer{Data: json.RawMessage(`[{"store":"main"}]`)}, nil
	case "GET /admin/datastore/{store}/namespace":
		return gate.Answer{Data: json.RawMessage(v.spaces)}, nil
	}
	return gate.Answer{Data: json.RawMessage(v.answers[r.Params["ns"]])}, nil
}

func TestBackupServer(t *testing.T) {
	lab := newLabView(t, "small", "admin", noon)
	night := time.Date(2026, 11, 29, 2, 31, 0, 0, time.UTC).Unix()
	old := time.Date(2026, 11, 20, 13, 0, 0, 0, time.UTC).Unix()
	v := withPBS{lab, map[string]string{
		"":     fmt.Sprintf(`[{"backup-type":"vm","backup-id":"101","owner":"pve@pbs!one","last-backup":%d},{"backup-type":"vm","backup-id":"102","owner":"other@pbs","last-backup":%d}]`, night, night),
		"east": fmt.Sprintf(`[{"backup-type":"vm","backup-id":"106","owner":"pve@pbs","last-backup":%d},{"backup-type":"host","backup-id":"106","last-backup":%d},{"backup-type":"vm","backup-id":"888","last-backup":%d}]`, old, night, old),
	}, `[{"ns":""},{"ns":"east"}]`}
	s, by := look(t, v, Question{})
	if by["101"].Verdict != Fresh {
		t.Errorf("101: %+v", by["101"])
	}
	for _, a := range s.Archives { // the group of 102 belongs to another cluster's user
		if a.Guest == "102" && a.Storage == "pbs1" && a.Whose != Foreign {
			t.Errorf("%s is %s", a.Volume, a.Whose)
		}
	}
	if by["102"].Verdict == Fresh || by["888"].Verdict != Orphaned || by["106"].Verdict == Fresh || by["106"].Others+by["106"].Archives != 1 {
		t.Errorf("102 %s, 888 %s, 106 %+v", by["102"].Verdict, by["888"].Verdict, by["106"])
	}
	if !slices.ContainsFunc(s.Archives, func(a Archive) bool { return a.Away() && strings.HasPrefix(a.Volume, "vault:main/east:vm/106/") }) {
		t.Error("the other namespace was not looked through")
	}
}
