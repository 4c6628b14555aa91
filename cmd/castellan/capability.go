package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"castellan/internal/cli"
	"castellan/internal/gate"
	"castellan/internal/ops/self"
	"castellan/internal/regex"
	"castellan/internal/rights"
	"castellan/internal/seal"
)

// capabilityCommand switches capabilities in the configuration file. Every serve takes the change up at its next call.
func (a *app) capabilityCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "capability on|off NAME", Short: "Switch a capability on or off, and print the grant that Proxmox still needs",
		ValidArgs: append([]string{"on", "off"}, gate.Capabilities()...), Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 || args[0] != "on" && args[0] != "off" {
				return cli.Usage{Err: errors.New("give: castellan capability on|off NAME; names: " + strings.Join(gate.Capabilities(), ", "))}
			}
			if !slices.Contains(gate.Capabilities(), args[1]) {
				hint := ""
				if near := gate.Nearest(args[1], gate.Capabilities()); near != "" {
					hint = "; did you mean " + near + "?"
				}
				return cli.Usage{Err: fmt.Errorf("there is no capability %q%s (names: %s)", args[1], hint, strings.Join(gate.Capabilities(), ", "))}
			}
			return nil
		}, RunE: func(cmd *cobra.Command, args []string) error {
			s, path, notes, err := a.load()
			if err != nil {
				return err
			}
			for _, n := range notes {
				if strings.HasPrefix(n, "policy.capabilities ") {
					return cli.Usage{Err: errors.New(n + "; unset it first")}
				}
			}
			want := slices.DeleteFunc(slices.Clone(s.Policy.Capabilities), func(c string) bool { return c == args[1] })
			if args[0] == "on" {
				want = append(want, args[1])
			}
			slices.Sort(want)
			if err := setCapabilities(path, want); err != nil {
				return err
			}
			if cli.JSON(cmd) {
				fmt.Fprintf(a.out, "{\"capability\":%q,\"on\":%t}\n", args[1], args[0] == "on")
			} else {
				fmt.Fprintf(a.out, "%s is %s in %s\n", args[1], args[0], path)
			}
			s.Policy.Capabilities = want
			a.afterSetting(cmd.Context(), s, args[1], args[0] == "on")
			return nil
		}}
	return cmd
}

var capabilityLine = &regex.Lazy{Expr: `(?m)^[ \t]*capabilities[ \t]*=[ \t]*\[[^\]]*\][ \t]*(#.*)?$`}

// setCapabilities rewrites the one line of the file and nothing else, so that comments stay; the result is read back
// before it takes the old file's place.
func setCapabilities(path string, want []string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("change capabilities: %w", err)
	}
	quoted := make([]string, len(want))
	for i, c := range want {
		quoted[i] = fmt.Sprintf("%q", c)
	}
	line := "capabilities = [" + strings.Join(quoted, ", ") + "]"
	text := string(old)
	switch found := capabilityLine.FindAllStringIndex(text, -1); len(found) {
	case 1:
		text = text[:found[0][0]] + line + text[found[0][1]:]
	case 0:
		head := regexp.MustCompile(`(?m)^\[policy\][ \t]*(#.*)?$`)
		if at := head.FindStringIndex(text); at != nil {
			text = text[:at[1]] + "\n" + line + text[at[1]:]
		} else {
			text = strings.TrimRight(text, "\n") + "\n\n[policy]\n" + line + "\n"
		}
	default:
		return fmt.Errorf("change capabilities: %s has %d lines that set capabilities; edit it by hand", path, len(found))
	}
	s, err := parseSettings([]byte(text))
	if err != nil {
		return fmt.Errorf("change capabilities: the changed file would not be valid: %w", err)
	}
	got := slices.Clone(s.Policy.Capabilities)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		return fmt.Errorf("change capabilities: %s sets them in a way that is not understood; edit it by hand", path)
	}
	return seal.Replace(path, []byte(text))
}

// afterSetting writes a change of settings into the ledger and, where a capability was switched on, prints the pveum
// lines that Proxmox still needs. Where it cannot be recorded the change stands, and it is said.
func (a *app) afterSetting(ctx context.Context, s Settings, capability string, on bool) {
	a.overseer = true
	h, err := a.house(ctx)
	if err == nil {
		h.start()
		defer h.end(5 * time.Second)
		word := "off"
		if on {
			word = "on"
		}
		err = h.gate.Note(ctx, a.person(), "settings", "capability "+capability+" "+word)
	}
	if err != nil {
		fmt.Fprintf(a.err, "castellan: the change is made, but it could not be recorded in the ledger: %s\n", cli.Safe(err.Error()))
	}
	if !on {
		return
	}
	for _, t := range s.Targets {
		if t.Kind != "pve" {
			continue
		}
		why := err
		var can rights.Ability
		var lines []string
		if h != nil {
			can, lines, why = a.granted(ctx, h, t.Name, capability)
		}
		switch {
		case why != nil:
			fmt.Fprintf(a.err, "What Proxmox grants on target %s could not be read (%s). All that it takes, for all guests (where the token is limited to pools or guests on purpose, these would lift that: castellan mint --print 9 --pool NAME prints narrower ones):\n", t.Name, cli.Safe(clipped(why.Error(), 200)))
			user, token, _ := strings.Cut(a.tokenOf(t), "!")
			lines = firstGrants(rights.Want{User: user, Token: token, Capabilities: s.Policy.Capabilities})
		case can.Can == "with":
			fmt.Fprintln(a.err, asksNothing(capability, t.Name))
			continue
		case can.Can == "everywhere":
			fmt.Fprintf(a.err, "Proxmox grants it on target %s already.\n", t.Name)
			continue
		default:
			fmt.Fprintf(a.err, "On target %s Proxmox must grant it too (run on a node as root; user and token both need it):\n", t.Name)
		}
		for _, line := range lines {
			fmt.Fprintln(a.err, "  "+cli.Safe(line))
		}
		fmt.Fprintf(a.err, "castellan mint --target %s does the same with a login that you type.\n", t.Name)
	}
}

// asksNothing says of a capability without a privilege of its own what it rests on.
func asksNothing(capability, target string) string {
	switch capability {
	case "updates", "upgrade":
		text := "Proxmox grants nothing for it on target " + target + ": castellan asks enrolled guests by a channel of its own (castellan enrol)."
		if capability == "upgrade" {
			text += " What is taken first needs the capability snapshot (or backup)."
		}
		return text
	case "host_command", "host_probe", "host_upgrade", "root_on_host":
		return "Proxmox grants nothing for it on target " + target + ": it goes through the bridge on a node (castellan bridge install), whose own settings must allow it too."
	}
	return "What Proxmox must grant on target " + target + " depends on the call; a refusal names it."
}

// granted says how far a capability goes on a target, and what gives the rest.
func (a *app) granted(ctx context.Context, h *house, target, capability string) (rights.Ability, []string, error) {
	args, err := json.Marshal(map[string]any{"capability": capability, "target": target})
	if err != nil {
		return rights.Ability{}, nil, err
	}
	out, err := h.gate.Do(ctx, gate.Call{Operation: "doctor", Args: args, Principal: a.person()}, nil)
	if err != nil {
		return rights.Ability{}, nil, err
	}
	var answer struct {
		Problems []self.Check `json:"problems"`
		Targets  []struct {
			Can      []rights.Ability `json:"can"`
			Commands []string         `json:"commands"`
		} `json:"targets"`
	}
	if err := json.Unmarshal(out.Answer, &answer); err != nil {
		return rights.Ability{}, nil, fmt.Errorf("read what doctor says: %w", err)
	}
	for _, t := range answer.Targets {
		for _, c := range t.Can {
			if c.Capability == capability {
				return c, t.Commands, nil
			}
		}
	}
	for _, c := range answer.Problems {
		return rights.Ability{}, nil, errors.New(c.Text)
	}
	return rights.Ability{}, nil, errors.New("nothing was said of it")
}
