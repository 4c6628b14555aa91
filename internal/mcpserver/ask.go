package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"castellan/internal/gate"
)

func canAsk(req *mcp.CallToolRequest) bool {
	caps := req.ClientCapabilities()
	if caps == nil || caps.Elicitation == nil {
		return false
	}
	e := caps.Elicitation
	return e.Form != nil || e.URL == nil // an empty object means form
}

// ask shows a waiting plan in a dialog of the client. The state that comes back is the plan's id and a one-use nonce:
// the second round is never a new plan. nil when there is nothing to ask.
func (s *Server) ask(ctx context.Context, who gate.Principal, plan string) *mcp.CallToolResult {
	v, nonce, err := s.c.Gate.Ask(ctx, who, plan)
	if err != nil {
		s.c.Log.Debug("ask about plan", "error", err)
		return nil
	}
	return &mcp.CallToolResult{
		InputRequests: mcp.InputRequestMap{"confirm": &mcp.ElicitParams{Mode: "form", Message: question(v, who), RequestedSchema: json.RawMessage(
			`{"type":"object","properties":{"confirm":{"type":"boolean","title":"Carry this out","description":"true carries the plan out exactly as shown"}},"required":["confirm"]}`)}},
		RequestState: v.ID + " " + nonce,
	}
}

// Bounds of a dialog's text, in bytes, and how many lines its hits and what was not read for them may take.
const (
	longestSteps    = 5000
	longestRequest  = 600
	longestHits     = 6000
	longestHit      = 500
	mostUnread      = 10
	longestQuestion = 16000
)

// question is what a dialog says. Where it is the approval there is nothing else to look at, so it tells what the preview
// on a terminal tells: the sentence and what it means for sure, what it hits beyond that, as many requests as fit, and
// after all that the words of others, named as theirs. What is left out is said, so that nobody takes a part for the whole.
func question(v *gate.PlanView, who gate.Principal) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nEffect: %s. It %s. Plan %s, digest %.12s.\n", v.Sentence, v.Effect, v.Undo, v.ID, v.Digest)
	b.WriteString(requester(v, who))
	b.WriteString(hits(v))
	b.WriteString(requests(v))
	if v.Note != "" {
		fmt.Fprintf(&b, "The planner's note: %s\n", oneLine(v.Note, 800))
	}
	if v.Reason != "" {
		fmt.Fprintf(&b, "The agent's reason: %q", v.Reason)
	}
	return bounded(strings.TrimSpace(b.String()), longestQuestion)
}

// requester says for whom the plan was made, by which client as far as it is this one's, and why it takes a yes.
func requester(v *gate.PlanView, who gate.Principal) string {
	agent, person, _ := strings.Cut(v.Requester, "|")
	by := "Asked by " + oneLine(person, 80)
	if agent != "" {
		by = "Asked by agent " + oneLine(agent, 80)
		if person != "" {
			by += " for " + oneLine(person, 80)
		}
	}
	if who.Client != "" && who.Key() == v.Requester {
		by += fmt.Sprintf(", through a client that calls itself %q", oneLine(who.Client, 80))
	}
	if v.Why != "" {
		by += ". A yes is needed: " + oneLine(v.Why, 300)
	}
	return sentence(by) + "\n"
}

// hits lists what the plan hits beyond what it names, the gravest first as in the plan, and what was not read for it.
func hits(v *gate.PlanView) string {
	if len(v.Hits)+len(v.Unread) == 0 {
		return ""
	}
	var b strings.Builder
	if len(v.Hits) > 0 {
		b.WriteString("Beyond what it names it hits:\n")
	}
	left, beyond := map[gate.Weight]int{}, ""
	full := false
	for _, h := range v.Hits {
		if h.Class == gate.HitsMore {
			beyond = oneLine(h.Text, longestHit)
			continue
		}
		object := oneLine(h.Object, 120)
		if h.Unknown {
			object += " (not known, counts as if it were so)"
		}
		line := fmt.Sprintf("- %s, %s: %s: %s\n", h.Weight, strings.ReplaceAll(oneLine(h.Class, 40), "_", " "), object, oneLine(h.Text, longestHit))
		if full = full || b.Len()+len(line) > longestHits; full { // none lighter in the place of a graver one
			left[h.Weight]++
			continue
		}
		b.WriteString(line)
	}
	if rest := gate.Weights(left); rest != "" {
		fmt.Fprintf(&b, "- and %s more, which castellan plans show %s tells\n", rest, v.ID)
	}
	if beyond != "" {
		fmt.Fprintf(&b, "- %s\n", beyond)
	}
	for i, u := range v.Unread {
		if i == mostUnread {
			fmt.Fprintf(&b, "- not read, and %d more: castellan plans show %s\n", len(v.Unread)-i, v.ID)
			break
		}
		fmt.Fprintf(&b, "- not read: %s\n", oneLine(u, 300))
	}
	return b.String()
}

// requests lists as many requests as fit, and at least the first.
func requests(v *gate.PlanView) string {
	var b strings.Builder
	for i, step := range v.Steps {
		line := fmt.Sprintf("%d. %s\n", step.Number, step.Request)
		if len(line) > longestRequest {
			line = fmt.Sprintf("%s (%d bytes in all; castellan plans show %s has the rest)\n", bounded(line, longestRequest), len(line), v.ID)
		}
		if b.Len()+len(line) > longestSteps && i > 0 {
			fmt.Fprintf(&b, "%d more steps do not fit here: castellan plans show %s has them.\n", len(v.Steps)-i, v.ID)
			break
		}
		b.WriteString(line)
	}
	return b.String()
}

// oneLine keeps a text from beginning a line of its own, which would look like one of castellan's.
func oneLine(s string, n int) string { return bounded(strings.Join(strings.Fields(s), " "), n) }

// answered takes the second round of a dialog, or of a page that was opened.
func (s *Server) answered(ctx context.Context, who gate.Principal, req *mcp.CallToolRequest, progress gate.Progress) (*mcp.CallToolResult, error) {
	plan, nonce, _ := strings.Cut(req.Params.RequestState, " ")
	if page, ok := s.pages.take(nonce, plan, who.Key()); ok {
		return s.opened(ctx, who, req, page, progress)
	}
	answer, ok := req.Params.InputResponses["confirm"].(*mcp.ElicitResult)
	if !ok {
		s.note(ctx, who, "a request state without the answer that belongs to it, for plan "+bounded(plan, 40))
		if again := s.ask(ctx, who, plan); again != nil {
			return again, nil
		}
		return failure(gate.Fail(gate.ErrInvalid, "show_plan tells where the plan stands; apply_plan asks again.", "the dialog's answer is missing, or nothing was asked")), nil
	}
	if yes, _ := answer.Content["confirm"].(bool); answer.Action != "accept" || !yes {
		if answer.Action == "cancel" {
			return failure(gate.Fail(gate.ErrNeedsApproval, "apply_plan asks again.", "the dialog was closed without an answer; plan %s still waits", bounded(plan, 40))), nil
		}
		return s.declined(ctx, who, plan, "the user said no in the dialog")
	}
	out, err := s.brief(ctx, req, progress, func(ctx context.Context, progress gate.Progress) (*gate.Outcome, error) {
		return s.c.Gate.Confirm(ctx, who, plan, gate.Evidence{Kind: "dialog", Nonce: nonce}, progress)
	})
	if err != nil {
		e := gate.AsError(err)
		if e.Kind == gate.ErrNotFound { // the gate records what it refuses of plans that there are
			s.note(ctx, who, "a request state of a plan that is not the caller's: "+bounded(plan, 40))
		}
		return failure(e), nil
	}
	return result(out), nil
}

func (s *Server) declined(ctx context.Context, who gate.Principal, plan, why string) (*mcp.CallToolResult, error) {
	if err := s.c.Gate.Decline(ctx, who, plan, why); err != nil {
		return failure(gate.AsError(err)), nil
	}
	return failure(gate.Fail(gate.ErrDenied, "Do not ask again unless the user changes their mind.", "the user said no; plan %s is withdrawn", bounded(plan, 40))), nil
}
