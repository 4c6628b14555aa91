package mcpserver

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"castellan/internal/gate"
)

// canOpen says whether the client can show its user a page to open.
func canOpen(req mcp.Request) bool {
	caps := capabilities(req)
	return caps != nil && caps.Elicitation != nil && caps.Elicitation.URL != nil
}

// pages remembers which approval pages clients were asked to open. What comes back is no approval: it only makes the
// server look at the plan again, so a process that does not know a nonce any more refuses it and nothing is lost.
type pages struct {
	mu   sync.Mutex
	open map[string]page // by nonce
}

type page struct {
	plan, owner string
	until       time.Time
}

// Bounds of pages.
const (
	maxPages  = 5000
	pageLimit = 12 * time.Hour
)

func (p *pages) add(plan, owner string) (nonce string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.open == nil {
		p.open = map[string]page{}
	}
	if len(p.open) >= maxPages {
		for n, o := range p.open {
			if now.After(o.until) {
				delete(p.open, n)
			}
		}
		for n := range p.open { // then any: the call is asked about again
			if len(p.open) < maxPages {
				break
			}
			delete(p.open, n)
		}
	}
	nonce = rand.Text()
	p.open[nonce] = page{plan: plan, owner: owner, until: now.Add(pageLimit)}
	return nonce
}

// take finds what was asked with a nonce, once. A nonce of another plan or caller is not there for this one.
func (p *pages) take(nonce, plan, owner string) (page, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o, ok := p.open[nonce]
	if !ok || o.plan != plan || o.owner != owner {
		return page{}, false
	}
	delete(p.open, nonce)
	return o, time.Now().Before(o.until)
}

// pageRequest asks a client to open the page on which a person approves a plan.
func pageRequest(v *gate.PlanView) *mcp.ElicitParams {
	return &mcp.ElicitParams{Mode: "url", URL: v.URL, ElicitationID: v.ID,
		Message: bounded(fmt.Sprintf("%s\nPlan %s needs a person's approval (%s) on this page. Opening it approves nothing.", v.Sentence, v.ID, v.Rung), 1500)}
}

// askPage asks for the page. The state that comes back is the plan's id and a one-use nonce.
func (s *Server) askPage(who gate.Principal, v *gate.PlanView) *mcp.CallToolResult {
	return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"approve": pageRequest(v)}, RequestState: v.ID + " " + s.pages.add(v.ID, who.Key())}
}

// approvalWait is how long a call waits for a person once the page was opened: within what clients wait for a call.
const approvalWait = 45 * time.Second

// opened takes the answer to askPage: the page was opened, which approves nothing. It waits for the approval, and carries
// the plan out only when the store says that it is approved.
func (s *Server) opened(ctx context.Context, who gate.Principal, req *mcp.CallToolRequest, p page, progress gate.Progress) (*mcp.CallToolResult, error) {
	answer, ok := req.Params.InputResponses["approve"].(*mcp.ElicitResult)
	switch {
	case !ok:
		s.note(ctx, who, "a request state without the answer that belongs to it, for plan "+bounded(p.plan, 40))
		v, r, err := s.c.Gate.Show(ctx, who, p.plan)
		if err != nil {
			return failure(gate.AsError(err)), nil
		}
		if r.State == gate.PlanProposed && v.URL != "" && canOpen(req) {
			return s.askPage(who, v), nil
		}
		return failure(gate.Fail(gate.ErrInvalid, "apply_plan with plan="+p.plan+" asks again.", "the answer is missing: plan %s is %s", p.plan, r.State)), nil
	case answer.Action == "decline":
		return s.declined(ctx, who, p.plan, "the user declined to open the approval page")
	case answer.Action != "accept":
		return failure(gate.Fail(gate.ErrNeedsApproval, "apply_plan with plan="+p.plan+" asks again.", "the approval page was not opened; plan %s still waits", p.plan)), nil
	}
	v, err := s.decided(ctx, who, p.plan, progress)
	if err != nil {
		return failure(gate.AsError(err)), nil
	}
	if v.State == gate.PlanProposed {
		return failure(gate.Fail(gate.ErrNeedsApproval, fmt.Sprintf("When the user has approved it at %s: apply_plan with plan=%s.", v.URL, p.plan),
			"nobody has approved plan %s yet (%s)", p.plan, v.Rung)), nil
	}
	if protocol(req) < stateless { // later clients are not told: they ask
		if err := req.Session.NotifyElicitationComplete(ctx, &mcp.ElicitationCompleteParams{ElicitationID: p.plan}); err != nil {
			s.c.Log.Debug("tell that the page is done with", "error", err)
		}
	}
	out, err := s.brief(ctx, req, progress, func(ctx context.Context, progress gate.Progress) (*gate.Outcome, error) {
		return s.c.Gate.Apply(ctx, who, p.plan, progress)
	})
	if err != nil {
		return failure(gate.AsError(err)), nil
	}
	return result(out), nil
}

// decided waits until a plan no longer waits for approval, for approvalWait at most, and returns it as it stands.
func (s *Server) decided(ctx context.Context, who gate.Principal, plan string, progress gate.Progress) (*gate.PlanView, error) {
	limit := time.NewTimer(approvalWait)
	defer limit.Stop()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		v, _, err := s.c.Gate.Show(ctx, who, plan)
		if err != nil || v.State != gate.PlanProposed {
			return v, err
		}
		progress.Report(0, len(v.Steps), "Plan "+plan+" waits for a person's approval.")
		select {
		case <-ctx.Done():
			return v, nil
		case <-limit.C:
			return v, nil
		case <-look.C:
		}
	}
}
