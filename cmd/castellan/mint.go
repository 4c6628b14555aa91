package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"castellan/internal/cli"
	"castellan/internal/gate"
	"castellan/internal/proxmox"
	"castellan/internal/rights"
	"castellan/internal/seal"
)

// minting makes castellan's user, roles and token, or prints how.
type minting struct {
	*wizard
	want   rights.Want
	login  string // USER@REALM of the person
	target string // of the configuration, in place of an address
	print  string // "8" or "9": only print, for that version
	file   string // that gets the token
	yes    bool
	fresh  bool // the token's secret is needed: without one to make there is nothing to do
}

func (a *app) mintCommand() *cobra.Command {
	m := &minting{wizard: &wizard{app: a}}
	var token string
	cmd := &cobra.Command{Use: "mint", Short: "Make a user, roles and a token in Proxmox VE for exactly the chosen capabilities, with your login, or print how", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		m.asJSON = cli.JSON(cmd)
		m.want.User, m.want.Token, _ = strings.Cut(token, "!")
		return m.run(cmd.Context())
	}}
	f := cmd.Flags()
	f.StringVar(&m.address, "address", "", "host or host:port of a PVE node")
	f.StringVar(&m.fingerprint, "fingerprint", "", "SHA-256 of its certificate, if you know it already")
	f.StringVar(&m.target, "target", "", "take address, fingerprint and token name from this target of the configuration")
	f.StringVar(&m.login, "login", "", "who logs in, such as root@pam; the password is typed, and kept nowhere")
	f.StringVar(&token, "token", defaultToken, "USER@REALM!TOKEN to make")
	f.StringVar(&m.allow, "allow", "", "look, everyday or all")
	f.StringSliceVar(&m.want.Capabilities, "capabilities", nil, "in place of --allow: these capabilities; default what the configuration has on")
	f.StringSliceVar(&m.want.Pools, "pool", nil, "only guests of these pools")
	f.StringSliceVar(&m.want.Guests, "guest", nil, "only these guests")
	f.StringSliceVar(&m.want.Storages, "storage", nil, "rights on storages only for these")
	f.StringVar(&m.file, "write", "", "new file (mode 0600) that gets the token; default pve.token beside the configuration")
	f.StringVar(&m.print, "print", "", "8 or 9: print the commands for that version and do nothing")
	f.BoolVar(&m.yes, "yes", false, "do not ask before the requests are sent")
	return cmd
}

func (m *minting) run(ctx context.Context) error {
	m.lines = bufio.NewReader(m.in)
	if err := m.fromConfiguration(); err != nil {
		return err
	}
	if m.print != "" {
		return m.printOnly()
	}
	if err := m.want.Check(); err != nil {
		return cli.Usage{Err: err}
	}
	if !m.terminal() {
		return cli.Usage{Err: errors.New("mint needs a terminal, since your password is typed; castellan mint --print 9 prints the commands")}
	}
	if m.file == "" {
		path, err := m.configPath()
		if err != nil {
			return err
		}
		if m.file, err = filepath.Abs(filepath.Join(filepath.Dir(path), tokenName)); err != nil {
			return err
		}
	}
	if err := m.askAddress(ctx); err != nil {
		return err
	}
	if err := m.confirmFingerprint(ctx); err != nil {
		return err
	}
	if m.login == "" {
		var err error
		if m.login, err = m.ask(ctx, "Who logs in (such as root@pam): "); err != nil {
			return err
		}
	}
	done, err := m.perform(ctx)
	if err != nil {
		return err
	}
	if m.asJSON {
		return cli.PrintJSON(m.out, map[string]any{"token": m.want.TokenID(), "file": m.file, "done": append([]string{}, done...)})
	}
	if len(done) == 0 {
		fmt.Fprintln(m.out, "All of it is there already; nothing was changed.")
		return nil
	}
	fmt.Fprintf(m.out, "Done. Check it with: castellan doctor\n")
	return nil
}

// fromConfiguration fills in what flags leave open.
func (m *minting) fromConfiguration() error {
	if m.allow != "" {
		i := slices.IndexFunc(allowances, func(a allowance) bool { return a.name == m.allow })
		if i < 0 {
			return cli.Usage{Err: fmt.Errorf("%q is none of look, everyday, all", m.allow)}
		}
		m.want.Capabilities = allowances[i].capabilities
	}
	s, _, _, err := m.load()
	if err != nil {
		if m.target != "" {
			return err
		}
		if m.allow == "" && m.want.Capabilities == nil {
			return cli.Usage{Err: errors.New("say what for: --allow look|everyday|all, or --capabilities (there is no configuration to take them from)")}
		}
		return nil
	}
	if m.allow == "" && m.want.Capabilities == nil {
		m.want.Capabilities = s.Policy.Capabilities
	}
	if m.target == "" && m.address == "" { // where there is one, it is the one that is meant
		var names []string
		for _, t := range s.Targets {
			if t.Kind == "pve" {
				names = append(names, t.Name)
			}
		}
		if len(names) == 1 {
			m.target = names[0]
		}
	}
	if m.target == "" {
		return nil
	}
	at := slices.IndexFunc(s.Targets, func(t proxmox.Target) bool { return t.Name == m.target && t.Kind == "pve" })
	if at < 0 {
		return cli.Usage{Err: fmt.Errorf("the configuration has no target %q of kind pve", m.target)}
	}
	t := s.Targets[at]
	if m.address == "" && len(t.Addresses) > 0 {
		m.address = t.Addresses[0]
	}
	m.pins = t.Pins
	if id := m.tokenOf(t); m.want.TokenID() == defaultToken && !strings.HasPrefix(id, "root@") {
		m.want.User, m.want.Token, _ = strings.Cut(id, "!")
	}
	return nil
}

func (m *minting) printOnly() error {
	v, err := rights.ParseVersion(m.print)
	if err != nil || !v.Known() {
		return cli.Usage{Err: fmt.Errorf("--print %q: give 8 or 9", m.print)}
	}
	m.want.Version = v
	if err := m.want.Check(); err != nil {
		return cli.Usage{Err: err}
	}
	lines := rights.Lines(m.want.Commands(nil))
	if m.asJSON {
		return cli.PrintJSON(m.out, map[string]any{"commands": lines})
	}
	for _, l := range lines {
		fmt.Fprintln(m.out, l)
	}
	return nil
}

// performLimit bounds all requests together.
const performLimit = 2 * time.Minute

// perform logs in, shows what is missing, and does it once the person has said yes. The token goes into the file at once.
func (m *minting) perform(ctx context.Context) (done []string, err error) {
	mint, err := proxmox.NewMinter(proxmox.MinterConfig{Address: m.address, Pins: []string{m.fingerprint}, Person: m.login, Want: m.want})
	if err != nil {
		return nil, cli.Usage{Err: err}
	}
	defer mint.Close()
	typed := func(question string) (string, error) {
		text, err := cli.Secret(ctx, m.in.(*os.File), m.err, question)
		if ctx.Err() != nil {
			return "", errStopped
		}
		if err == nil && strings.TrimSpace(text) == "" {
			return "", errStopped
		}
		return text, err
	}
	password, err := typed(fmt.Sprintf("Password of %s at %s (it is not shown, and kept nowhere): ", m.login, m.address))
	if err != nil {
		return nil, err
	}
	if err := mint.LogIn(ctx, password, func() (string, error) {
		code, err := typed("Code of the authenticator app, or a recovery key: ")
		return strings.TrimSpace(code), err
	}); err != nil {
		return nil, err
	}
	version, have, err := mint.Look(ctx)
	if err != nil {
		return nil, fmt.Errorf("look what is there: %w", err)
	}
	m.want.Version = version
	todo := m.want.Commands(have)
	makes := slices.ContainsFunc(todo, func(c rights.Command) bool { return strings.Contains(c.Operation, "/token/") })
	if _, err := os.Lstat(m.file); !makes && m.fresh && err != nil {
		return nil, gate.Fail(gate.ErrDenied, fmt.Sprintf("Make another: castellan init --token %s!NAME. Or take the old one away on a node: pveum user token remove %s %s; then run init again.", m.want.User, m.want.User, m.want.Token),
			"the token %s is there already, and its secret was told only when it was made; no configuration was written", m.want.TokenID())
	}
	if !makes {
		fmt.Fprintf(m.err, "The token %s is there and keeps its secret. Should that be lost: make another with --token, or this one anew after pveum user token remove %s %s\n", m.want.TokenID(), m.want.User, m.want.Token)
	}
	for _, s := range m.want.Surplus(have) {
		fmt.Fprintf(m.err, "Note: %s\n", cli.Safe(s))
	}
	if len(todo) == 0 {
		return nil, nil
	}
	if shared := m.want.Shared(have, todo); len(shared) > 0 {
		return nil, gate.Fail(gate.ErrDenied, "Nothing was done. Name another user (--token), whose roles have other names, or take those roles from the others.",
			"what is to be added to a role would reach others too: %s", cli.Safe(strings.Join(shared, "; ")))
	}
	if _, err := os.Lstat(m.file); err == nil && makes {
		return nil, cli.Usage{Err: fmt.Errorf("there is a file %s already, and a token's secret is never written over: move it away, or name another (--write); nothing was done", m.file)}
	}
	fmt.Fprintf(m.err, "\nProxmox VE %s. This is what will be done there, as %s:\n", version, cli.Safe(m.login))
	for i, c := range todo {
		fmt.Fprintf(m.err, "  %d  %-48s %s\n", i+1, c.Operation, cli.Safe(c.String()))
	}
	if !m.yes {
		answer, err := m.ask(ctx, "Do it? Type yes or no: ")
		if err != nil {
			return nil, err
		}
		if a := strings.ToLower(answer); a != "yes" && a != "y" {
			return nil, gate.Fail(gate.ErrDenied, "Nothing was done.", "the requests were not confirmed")
		}
	}
	if err := os.MkdirAll(filepath.Dir(m.file), 0o700); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	// From here on all is done or the first failure is said: half of it because of an impatient key would help nobody.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), performLimit)
	defer cancel()
	for i, c := range todo {
		secret, err := mint.Give(ctx, c)
		if err != nil {
			return done, fmt.Errorf("step %d of %d (%s): %w; the steps before it were done, and mint goes on from there when it is run again", i+1, len(todo), c.Operation, err)
		}
		done = append(done, c.String())
		if secret.IsZero() {
			continue
		}
		if err := seal.Create(m.file, append(secret.Bytes(), '\n')); err != nil {
			undo := fmt.Sprintf("pveum user token remove %s %s", m.want.User, m.want.Token)
			if errors.Is(err, fs.ErrExist) {
				err = errors.New("somebody else made it just now")
			}
			return done, fmt.Errorf("write the token's secret to %s: %w; it cannot be told again: %s, then run mint again", m.file, err, undo)
		}
		fmt.Fprintf(m.err, "The token's secret is in %s (mode 0600) and nowhere else.\n", m.file)
	}
	return done, nil
}
