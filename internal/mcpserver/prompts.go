package mcpserver

import (
	"context"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// prompt is a common job as a client offers it to a person: which operations answer it, and how to tell the answer.
type prompt struct {
	name, title, summary string
	argument, about      string   // its one argument, where it takes one
	operations           []string // that it names; it is offered where all are there
	text                 string   // %s is the argument
}

func prompts() []prompt {
	return []prompt{
		{"morning_round", "Morning round", "What needs a look today", "", "", []string{"site_check"},
			"Call site_check. Tell me what needs a look today, worst first, each with its figure and the next step that it names. Say what could not be read, and the grant that would mend it. Change nothing."},
		{"why_slow", "Why is a guest slow?", "Ranked causes with figures", "guest", "id or unique name of the guest", []string{"diagnose_guest", "diagnose_node"},
			"Call diagnose_guest for guest %s. If the surest cause lies with its node, call diagnose_node for that too. Tell me the causes in their order, each with its figures and how sure it is, and what could not be read. Propose one next step; change nothing."},
		{"backed_up", "Is everything backed up?", "Which guests lack the backups that their jobs promise", "", "", []string{"backup_freshness", "list_backup_jobs"},
			"Call backup_freshness, and list_backup_jobs where a guest is in no job. Tell me which guests have no backup, an old one, or none that can be told, and why. Say what could not be seen. Change nothing."},
		{"what_may_i", "What may I do here?", "Targets, rights, and which controls are on", "", "", []string{"doctor"},
			"Call doctor. Tell me what I may read and change through castellan here, what needs whose approval, what is off, and which grant or setting would change that. Change nothing."},
		{"before_patching", "Before I patch", "Is a guest fit to be patched, and is there a way back", "guest", "id or unique name of the guest", []string{"guest_status", "backup_freshness", "list_snapshots", "diagnose_guest"},
			"I want to patch guest %s. Call guest_status, diagnose_guest, backup_freshness and list_snapshots for it. Tell me whether it is well, when it was last backed up, which snapshots it has, and what speaks against patching now. Then propose the way back to make first; change nothing before I say so."},
	}
}

const longestArgument = 100

// addPrompts offers the jobs whose operations are all there. They add nothing to the list of tools.
func (s *Server) addPrompts() {
	for _, p := range prompts() {
		there := true
		for _, o := range p.operations {
			there = there && s.ops[o] != nil
		}
		if !there {
			continue
		}
		shown := &mcp.Prompt{Name: p.name, Title: p.title, Description: p.summary}
		if p.argument != "" {
			shown.Arguments = []*mcp.PromptArgument{{Name: p.argument, Description: p.about, Required: true}}
		}
		s.mcp.AddPrompt(shown, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			text := p.text
			if p.argument != "" {
				given := strings.TrimSpace(req.Params.Arguments[p.argument])
				if given == "" || len(given) > longestArgument {
					return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("prompt %s takes %s: %s, up to %d characters", p.name, p.argument, p.about, longestArgument)}
				}
				text = fmt.Sprintf(text, fmt.Sprintf("%q", given))
			}
			for _, o := range p.operations {
				if !s.shown[o] && s.shown["call_operation"] {
					text += " What is not listed as a tool is called through call_operation by its name."
					break
				}
			}
			return &mcp.GetPromptResult{Description: p.summary, Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: text}}}}, nil
		})
	}
}
