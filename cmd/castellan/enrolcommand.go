package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"castellan/internal/channel"
	"castellan/internal/cli"
	"castellan/internal/gate"
	"castellan/internal/ops/pve"
	"castellan/internal/proxmox"
)

// roll tells operations who is enrolled.
type roll struct {
	channels *channel.Channels
	client   *proxmox.Client
}

func (r roll) Site(ctx context.Context, target string) (string, error) {
	return r.client.Identify(ctx, target)
}

func (r roll) Enrolled(ctx context.Context) ([]pve.Enrolled, error) {
	rows, err := r.channels.List(ctx)
	if err != nil {
		return nil, err
	}
	var out []pve.Enrolled
	for _, x := range rows {
		system := x.System.Name
		if system == "" {
			system = x.System.ID
		}
		out = append(out, pve.Enrolled{Site: x.Site, Kind: x.Kind, Name: x.Name, System: system, Address: x.Address, Way: x.Way, Automatic: x.Automatic, From: x.From, By: x.By, VMID: int64(x.VMID), Since: x.At, Answered: x.Answered, Bad: x.Bad})
	}
	return out, nil
}

// enrolCommand lets castellan look after a guest's packages. It is the operation enrol_guest, with what a terminal adds: the
// script to paste, and the block that it prints read back.
func (a *app) enrolCommand(c cli.Config) *cobra.Command {
	var in struct {
		Guest     string   `json:"guest"`
		Automatic string   `json:"automatic,omitempty"`
		From      string   `json:"from,omitempty"`
		Pool      string   `json:"pool,omitempty"`
		Tags      []string `json:"tags,omitempty"`
		Way       string   `json:"way,omitempty"`
		HostKeys  []string `json:"host_keys,omitempty"`
		Port      int      `json:"port,omitempty"`
		Family    string   `json:"family,omitempty"`
		Target    string   `json:"target,omitempty"`
	}
	var script, accept bool
	cmd := &cobra.Command{Use: "enrol GUEST... | --pool NAME | --tag NAME", Short: "Let castellan look after the packages of guests; the plan is shown first",
		Long: "Let castellan look after the packages of guests: through the bridge of their node (containers), through their guest agent (VMs), or by a script that you run in one as root.\nThe plan is shown first. A guest takes castellan's key for fixed words only, and from castellan's address only.\n\n" +
			"Several guests, or all of a pool or with a tag that are not enrolled yet, are one plan with one question; one that fails ends none of the others, and the same line with --pool or --tag takes it up again.\n\n" +
			"Without a terminal --script prints no script while the plan waits: the plan and the next line to type go to standard error, and the exit code is 8.",
		Example: "  castellan enrol web --automatic off\n  castellan enrol 101 102 105\n  castellan enrol --pool test\n  castellan enrol 101 --script > script.sh\n  castellan enrol 101 --accept < what-the-script-printed"}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		many := len(args) != 1
		switch {
		case len(args) == 0 && in.Pool == "" && len(in.Tags) == 0:
			return cli.Usage{Err: errors.New("castellan enrol takes guests, by id or name, or --pool or --tag: all of a pool or with a tag")}
		case many && (script || accept):
			return cli.Usage{Err: errors.New("--script and --accept are for one guest, by id or name")}
		case len(args) > 1 && (in.Pool != "" || len(in.Tags) > 0):
			return cli.Usage{Err: errors.New("give guests, or --pool or --tag to take all of a pool or with a tag")}
		case many && len(in.Tags) > 1:
			return cli.Usage{Err: errors.New("give one --tag: all guests that have it are meant")}
		case !many:
			in.Guest = args[0]
		}
		switch {
		case script && accept:
			return cli.Usage{Err: errors.New("give one of --script and --accept")}
		case script:
			in.Way = "script"
		case accept:
			in.Way = "accept"
			keys, port, err := a.pastedKeys(cmd.Context())
			if err != nil {
				return cli.Usage{Err: err}
			}
			if in.HostKeys = keys; in.Port == 0 {
				in.Port = port
			}
		}
		if !accept && in.Automatic == "" && a.terminal() && !cli.JSON(cmd) {
			var err error
			if in.Automatic, err = a.askAutomatic(cmd.Context(), many); err != nil {
				return err
			}
		}
		if many {
			b, err := json.Marshal(struct {
				Guests    []string `json:"guests,omitempty"`
				Pool      string   `json:"pool,omitempty"`
				Tag       string   `json:"tag,omitempty"`
				Automatic string   `json:"automatic,omitempty"`
				From      string   `json:"from,omitempty"`
				Target    string   `json:"target,omitempty"`
			}{args, in.Pool, strings.Join(in.Tags, ""), in.Automatic, in.From, in.Target})
			if err != nil {
				return err
			}
			return c.Do(cmd, gate.Call{Operation: "enrol_guests", Args: b})
		}
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		call := gate.Call{Operation: "enrol_guest", Args: b}
		if !script || cli.JSON(cmd) {
			return c.Do(cmd, call)
		}
		return a.printScript(cmd, c, call)
	}
	f := cmd.Flags()
	f.StringVar(&in.Automatic, "automatic", "", "the guest's own automatic updates: keep, off or on (asked for on a terminal, else keep)")
	f.StringVar(&in.From, "from", "", "castellan's address as the guest sees it (default: this machine's on the route to the guest)")
	f.StringVar(&in.Pool, "pool", "", "all guests of this pool; with one guest: put it into this pool too")
	f.StringArrayVar(&in.Tags, "tag", nil, "all guests with this tag; with one guest: give it this tag too, where the site reserves it (repeatable)")
	f.BoolVar(&script, "script", false, "print a script to run as root in the guest")
	f.BoolVar(&accept, "accept", false, "read what the script printed from standard input, try the channel and keep it")
	f.IntVar(&in.Port, "port", 0, "with --accept: port of the guest's sshd, where the script does not say")
	f.StringVar(&in.Family, "family", "", "with --script: apt, dnf, pacman, zypper or apk, for a VM")
	f.StringVar(&in.Target, "target", "", "which target, where there are several")
	return cmd
}

// askAutomatic asks what becomes of the own automatic updates of a guest, or of many.
func (a *app) askAutomatic(ctx context.Context, many bool) (string, error) {
	question := "May the guest go on installing updates by itself?"
	if many {
		question = "May the guests go on installing updates by themselves?"
	}
	r := bufio.NewReader(a.in)
	for range 3 {
		fmt.Fprint(a.err, question+" keep leaves that as it is, off or on sets it [keep]: ")
		line, err := cli.ReadLine(ctx, r)
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("read answer: %w", err)
		}
		switch text := strings.TrimSpace(line); {
		case text == "" && err == nil:
			return "keep", nil
		case text == "keep" || text == "off" || text == "on":
			return text, nil
		case err != nil:
			return "", cli.Usage{Err: errors.New("there was no answer; nothing was changed. Give --automatic keep, off or on")}
		}
		fmt.Fprintln(a.err, "That is none of keep, off and on.")
	}
	return "", cli.Usage{Err: errors.New("none of the answers was keep, off or on; nothing was changed. --automatic says it too")}
}

func oneGuest(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return cli.Usage{Err: fmt.Errorf("%s takes one guest, by id or name", cmd.CommandPath())}
	}
	return nil
}

// mostPasted bounds what is read of a pasted block, in bytes.
const mostPasted = 64 << 10

// pastedKeys reads the block that the script printed in the guest: its lines host-key and port, or plain public keys. On a
// terminal an empty line, or the line end, ends it.
func (a *app) pastedKeys(ctx context.Context) (keys []string, port int, err error) {
	if a.terminal() {
		fmt.Fprintln(a.err, "Paste what the script printed, then an empty line:")
	}
	r := bufio.NewReader(io.LimitReader(a.in, mostPasted))
	for {
		line, err := cli.ReadLine(ctx, r)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, 0, fmt.Errorf("read host keys: %w", err)
		}
		done := errors.Is(err, io.EOF)
		text := strings.Join(strings.Fields(line), " ")
		if rest, ok := strings.CutPrefix(text, "host-key "); ok {
			text = rest
		}
		switch {
		case strings.HasPrefix(text, "ssh-") || strings.HasPrefix(text, "ecdsa-"):
			keys = append(keys, text)
		case strings.HasPrefix(text, "refused "):
			return nil, 0, fmt.Errorf("the script refused: %s", cli.Safe(strings.TrimPrefix(text, "refused ")))
		case strings.HasPrefix(text, "port "):
			if _, err := fmt.Sscanf(text, "port %d", &port); err != nil || port < 1 || port > 65535 {
				return nil, 0, fmt.Errorf("read host keys: %q names no port", cli.Safe(text))
			}
		}
		if done || text == "end" || text == "" && len(keys) > 0 {
			break
		}
	}
	if len(keys) == 0 {
		return nil, 0, errors.New("there is no host key in what was pasted: give the block that the script printed, from castellan 1 enrol to end")
	}
	return keys, port, nil
}

// printScript carries the plan out as any other and writes the script alone to standard output, so that it can go into a file.
func (a *app) printScript(cmd *cobra.Command, c cli.Config, call gate.Call) error {
	shown := c
	shown.Out = a.err // plan and receipt beside the script
	var script string
	shown.Open = func(ctx context.Context) (cli.Gate, func(), error) {
		g, done, err := c.Open(ctx)
		return scriptGate{g, &script}, done, err
	}
	err := shown.Do(cmd, call)
	if script != "" {
		fmt.Fprint(a.out, script)
		fmt.Fprintln(a.err, "next: run it as root in the guest, then hand back what it prints with --accept in place of --script")
	}
	return err
}

// scriptGate takes the script out of an outcome.
type scriptGate struct {
	cli.Gate
	script *string
}

func (s scriptGate) Do(ctx context.Context, call gate.Call, p gate.Progress) (*gate.Outcome, error) {
	out, err := s.Gate.Do(ctx, call, p)
	return s.took(out), err
}

func (s scriptGate) Confirm(ctx context.Context, who gate.Principal, id string, e gate.Evidence, p gate.Progress) (*gate.Outcome, error) {
	out, err := s.Gate.Confirm(ctx, who, id, e, p)
	return s.took(out), err
}

func (s scriptGate) took(out *gate.Outcome) *gate.Outcome {
	if out == nil {
		return nil
	}
	for i := range out.Output {
		if o := &out.Output[i]; o.Way == "script" && o.Stdout != "" {
			*s.script, o.Stdout = o.Stdout, ""
		}
	}
	return out
}

func (a *app) unenrolCommand(c cli.Config) *cobra.Command {
	var in struct {
		Guest  string `json:"guest"`
		Forget bool   `json:"forget,omitempty"`
		Target string `json:"target,omitempty"`
	}
	cmd := &cobra.Command{Use: "unenrol GUEST", Short: "Take castellan's key, account and helper out of a guest; the plan is shown first", Args: oneGuest}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in.Guest = args[0]
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		return c.Do(cmd, gate.Call{Operation: "unenrol_guest", Args: b})
	}
	cmd.Flags().BoolVar(&in.Forget, "forget", false, "remove castellan's side only, for a guest that cannot be reached")
	cmd.Flags().StringVar(&in.Target, "target", "", "which target, where there are several")
	return cmd
}

func (a *app) enrolledCommand(c cli.Config) *cobra.Command {
	var target string
	cmd := &cobra.Command{Use: "enrolled", Short: "List the guests whose packages castellan looks after", Args: cobra.NoArgs}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		args := map[string]string{}
		if target != "" {
			args["target"] = target
		}
		b, err := json.Marshal(args)
		if err != nil {
			return err
		}
		return c.Do(cmd, gate.Call{Operation: "list_enrolled", Args: b})
	}
	cmd.Flags().StringVar(&target, "target", "", "which target, where there are several")
	return cmd
}
