package main

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"castellan/internal/catalog"
	"castellan/internal/catalog/facts"
	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/proxmox"
	"castellan/internal/reach"
	"castellan/internal/seal"
)

// siteView reads a target through castellan's own client, as the gate's view of a caller without a scope does.
type siteView struct {
	client *proxmox.Client
	info   gate.TargetInfo
	calls  atomic.Int64
}

func (v *siteView) Read(ctx context.Context, target string, r gate.Read) (gate.Answer, error) {
	v.calls.Add(1)
	args := map[string]any{}
	for k, text := range r.Params {
		args[k] = text
	}
	req, err := gate.NewRequest("pve", r.Operation, args)
	if err != nil {
		return gate.Answer{}, err
	}
	return v.client.Read(ctx, target, req)
}

func (v *siteView) Plan(context.Context, string, json.RawMessage) (*gate.Draft, error) {
	return nil, gate.Fail(gate.ErrNotFound, "", "none")
}
func (v *siteView) Query(context.Context, string, json.RawMessage) (json.RawMessage, error) {
	return nil, gate.Fail(gate.ErrNotFound, "", "none")
}
func (v *siteView) Run(context.Context, string, string, map[string]any) (gate.RunResult, error) {
	return gate.RunResult{}, gate.Fail(gate.ErrDenied, "", "no lane is configured")
}
func (v *siteView) Sees(context.Context, string, gate.ObjectFacts) bool { return true }
func (v *siteView) Scoped() bool                                        { return false }
func (v *siteView) Target(string) (gate.TargetInfo, error)              { return v.info, nil }
func (v *siteView) Targets() []gate.TargetInfo                          { return []gate.TargetInfo{v.info} }
func (v *siteView) Principal() gate.Principal                           { return gate.Principal{Person: "bench"} }
func (v *siteView) Now() time.Time                                      { return time.Now() }
func (v *siteView) SawFreeText()                                        {}

// parallel is how many reads the estate has under way at once, and answerTime what the lab takes for each of those that
// are read guest by guest: with an answer time of nothing, what is measured would be this machine's processors.
const (
	parallel   = 16
	answerTime = 20 * time.Millisecond
)

// graph measures the estate's graph of the site of 100 nodes and 10,000 guests.
func graph(s *site) error {
	ctx := context.Background()
	c, err := catalog.New(catalog.Config{Facts: facts.Open()})
	if err != nil {
		return err
	}
	client, err := proxmox.New(proxmox.Config{Settings: proxmox.Settings{Targets: []proxmox.Target{s.target}}, Catalog: c.Guide(), Secrets: seal.Open})
	if err != nil {
		return err
	}
	defer client.Close()
	v := &siteView{client: client, info: gate.TargetInfo{Name: "lab", Product: "pve", Site: "big", User: "root@pam!admin", Version: "9.2.11"}}
	e := estate.New()
	if _, err := v.Read(ctx, "lab", gate.Read{Operation: "GET /version"}); err != nil { // connects
		return err
	}
	var took []float64
	calls := 0
	for range 3 {
		fresh := estate.New()
		v.calls.Store(0)
		began := time.Now()
		survey, err := fresh.Survey(ctx, v, "lab", time.Minute)
		if err != nil {
			return err
		}
		if g := survey.Graph(estate.ResourceParts()...); len(g.Gaps) > 0 {
			return fmt.Errorf("read the resource graph: %v", g.Gaps)
		}
		took = append(took, time.Since(began).Seconds())
		calls = int(v.calls.Load())
	}
	line("resource graph of 10,000 guests: API requests", fmt.Sprint(calls), "", "", "≤ 20", calls <= 20)
	line("resource graph of 10,000 guests: time", fmt.Sprintf("%.2f s", median(took)), "", "", "≤ 2 s", median(took) <= 2)

	slow := lab.Duration(answerTime)
	var faults []lab.Fault
	for _, path := range []string{"/nodes/*/qemu/*/config", "/nodes/*/lxc/*/config", "/nodes/*/qemu/*/snapshot", "/nodes/*/lxc/*/snapshot", "/nodes/*/network", "/nodes/*/storage/*/content"} {
		faults = append(faults, lab.Fault{Kind: "slow", Method: "GET", Path: path, Delay: slow})
	}
	s.lab.SetFaults(faults)
	var one []float64 // how long the lab takes for one of them, asked one after another
	for i := range 100 {
		began := time.Now()
		if _, err := v.Read(ctx, "lab", gate.Read{Operation: "GET /nodes/{node}/qemu/{vmid}/config", Params: map[string]string{"node": fmt.Sprintf("node%03d", i%100+1), "vmid": fmt.Sprint(100 + i - i%4)}}); i%4 == 0 && err != nil {
			return err
		}
		one = append(one, time.Since(began).Seconds())
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	v.calls.Store(0)
	began := time.Now()
	survey, err := e.Survey(ctx, v, "lab", time.Hour)
	if err != nil {
		return err
	}
	g := survey.Graph(append(estate.ResourceParts(), estate.ConfigParts()...)...)
	read := time.Since(began).Seconds()
	calls = int(v.calls.Load())
	s.lab.SetFaults(nil)
	s.lab.ResetRequests()
	runtime.GC()
	runtime.ReadMemStats(&after)
	if len(g.Gaps) > 0 {
		return fmt.Errorf("read the config graph: %d gaps, the first %v", len(g.Gaps), g.Gaps[0])
	}
	ideal := median(one) * float64(calls) / parallel
	line(fmt.Sprintf("config graph of 10,000 guests (%d requests)", calls), fmt.Sprintf("%.1f s", read), fmt.Sprintf("%.1f s (the lab's answer time × requests ÷ %d)", ideal, parallel), fmt.Sprintf("%.2f ×", read/ideal), "≤ 1.2 ×", read/ideal <= 1.2)
	mib := float64(after.HeapAlloc-before.HeapAlloc) / (1 << 20)
	line("memory of the config graph", fmt.Sprintf("%.0f MiB", mib), "", "", "≤ 250 MiB", mib <= 250)

	walker, err := reach.New(reach.Config{Estate: e, Catalog: c})
	if err != nil {
		return err
	}
	req, err := gate.NewRequest("pve", "DELETE /storage/{storage}", map[string]any{"storage": "nas"})
	if err != nil {
		return err
	}
	op, ok := c.Lookup("pve", req.Operation)
	if !ok {
		return fmt.Errorf("look up %s: there is no such operation", req.Operation)
	}
	question := gate.WalkQuestion{Steps: []gate.Step{{Number: 1, Target: "lab", API: &req, Judgement: c.Judge(op, req)}}}
	found := 0
	took = nil
	for range 41 { // the lab's own memory is collected in this process too, and slows down some of them
		began := time.Now()
		found = len(walker.Walk(ctx, v, question).Hits)
		took = append(took, time.Since(began).Seconds()*1000)
	}
	line("blast radius of deleting a storage there", fmt.Sprintf("%.1f ms", median(took)), "", fmt.Sprintf("%d hits", found), "≤ 20 ms", median(took) <= 20)
	runtime.KeepAlive(g)
	return nil
}
