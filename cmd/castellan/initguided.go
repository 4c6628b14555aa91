package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"castellan/internal/cli"
	"castellan/internal/local"
	"castellan/internal/rights"
	"castellan/internal/seal"
)

// guided is the whole set-up: every question first, then token and configuration without another one, then a look at the result.
func (w *wizard) guided(ctx context.Context) error {
	path, err := w.configPath()
	if err != nil {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return fmt.Errorf("find configuration: %w", err)
	}
	if err := errors.Join(knownClients(w.clientNames), w.want.Check()); err != nil {
		return cli.Usage{Err: err}
	}
	w.lines = bufio.NewReader(w.in)
	if err := w.offerAccount(ctx); err != nil {
		return err
	}
	if err := w.forDaemon(path); err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return w.keep(ctx, path)
	}
	tokenPath := filepath.Join(filepath.Dir(path), tokenName)
	if err := w.leftToken(ctx, tokenPath); err != nil {
		return err
	}
	if err := w.askAddress(ctx); err != nil {
		return err
	}
	if err := w.confirmFingerprint(ctx); err != nil {
		return err
	}
	if w.want.Capabilities, err = w.choose(ctx); err != nil {
		return err
	}
	if err := w.askLogin(ctx); err != nil {
		return err
	}
	if err := w.askClients(ctx); err != nil {
		return err
	}
	secret, err := w.obtain(ctx, tokenPath)
	if err != nil {
		return err
	}
	// Everything was answered: what follows takes a moment, and is not left half done.
	return w.write(context.WithoutCancel(ctx), path, secret, w.want.Capabilities)
}

// offerAccount asks root whether a daemon of an account of its own is to be set up.
func (w *wizard) offerAccount(ctx context.Context) error {
	if w.account != "" || os.Geteuid() != 0 || !w.terminal() || w.noDaemon {
		return nil
	}
	if _, err := (local.Accounts{}).Number("castellan"); err != nil {
		fmt.Fprintln(w.err, "Approvals by people and passkeys count only where a daemon runs under an account of its own. For that stop here, and as root:\n"+
			"  useradd --system --shell /usr/sbin/nologin castellan && install -d -m 0700 -o castellan -g castellan /etc/castellan /var/lib/castellan\n"+
			"  castellan --config /etc/castellan/castellan.toml init --account castellan --accounts YOU=claude")
		return nil
	}
	answer, err := w.ask(ctx, "Set up for a daemon under the account castellan, so that approvals by people count? Type yes or no: ")
	if err != nil {
		return err
	}
	if strings.HasPrefix(strings.ToLower(answer), "y") {
		w.account = "castellan"
	}
	return nil
}

// keep is what a second run does: it changes nothing, looks, and tells clients again where castellan is.
func (w *wizard) keep(ctx context.Context, path string) error {
	if !w.keepThere {
		if !w.terminal() {
			return cli.Usage{Err: fmt.Errorf("there is a configuration already: %s; --keep looks at it and changes nothing, or move it away first", path)}
		}
		fmt.Fprintf(w.err, "There is a configuration already: %s\n", path)
		answer, err := w.ask(ctx, "Keep it as it is, and look whether all is well? Type yes or no: ")
		if err != nil {
			return err
		}
		if !strings.HasPrefix(strings.ToLower(answer), "y") {
			return cli.Usage{Err: errors.New("nothing was changed; to begin anew, move the configuration away first")}
		}
	}
	w.config = path
	if err := w.askClients(ctx); err != nil {
		return err
	}
	return w.finish(ctx, path)
}

// leftToken offers a token that an earlier run left.
func (w *wizard) leftToken(ctx context.Context, path string) error {
	if _, err := os.Lstat(path); err != nil || w.tokenFile == path {
		return nil
	}
	if w.tokenFile == "" && w.terminal() {
		answer, err := w.ask(ctx, fmt.Sprintf("There is a token of an earlier set-up: %s. Use it? Type yes or no: ", path))
		if err != nil {
			return err
		}
		if strings.HasPrefix(strings.ToLower(answer), "y") {
			w.tokenFile = path
			return nil
		}
	}
	return cli.Usage{Err: fmt.Errorf("there is a token of an earlier set-up: %s; move it away first, or use it: --token-file %s", path, shellWord(path))}
}

// byHand is the answer of who runs the commands alone.
const byHand = "print"

func (w *wizard) askLogin(ctx context.Context) error {
	if w.tokenFile != "" || w.login != "" {
		return nil
	}
	if !w.terminal() {
		w.login = byHand // the token is read from the input
		return nil
	}
	fmt.Fprintf(w.err, "\ncastellan needs a user and token of its own (%s). It can make them now with your login, which it does not keep; or it prints the commands.\n", w.want.TokenID())
	var err error
	w.login, err = w.ask(ctx, "Log in as (such as root@pam), or print: ")
	return err
}

// askClients finds programs that could use castellan, and asks whether to tell them.
func (w *wizard) askClients(ctx context.Context) error {
	if len(w.clientNames) > 0 || w.asJSON || !w.terminal() || w.account != "" {
		return nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return fmt.Errorf("find the home folder: %w", err)
	}
	var names, titles []string
	for _, c := range clients() {
		if c.there(home) {
			names, titles = append(names, c.name), append(titles, c.title)
		}
	}
	if len(names) == 0 {
		return nil
	}
	answer, err := w.ask(ctx, "Write castellan into the settings of "+strings.Join(titles, ", ")+"? Type yes or no: ")
	if err != nil {
		return err
	}
	if strings.HasPrefix(strings.ToLower(answer), "y") {
		w.clientNames, w.writeClients = names, true
	}
	return nil
}

// obtain makes the token with the person's login, or reads one that the person made.
func (w *wizard) obtain(ctx context.Context, tokenPath string) (string, error) {
	if w.tokenFile != "" {
		return w.readToken(ctx, w.want.TokenID())
	}
	if w.login == byHand {
		w.printGrants(w.want)
		return w.readToken(ctx, w.want.TokenID())
	}
	m := &minting{wizard: w, want: w.want, login: w.login, file: tokenPath, yes: w.yes, fresh: true}
	if _, err := m.perform(ctx); err != nil {
		return "", err
	}
	w.tokenFile = tokenPath
	s, err := seal.Open(tokenPath)
	if err != nil {
		return "", fmt.Errorf("read the secret of %s: %w", w.want.TokenID(), err)
	}
	return strings.TrimSpace(s.Reveal()), nil
}

// printGrants prints the commands; for both versions where they differ, since without a login nobody says which it is.
func (w *wizard) printGrants(want rights.Want) {
	fmt.Fprintln(w.err, "\nRun this on the node as root; it makes a user, roles and a token for exactly that:")
	var older []string
	for i, v := range slices.Backward(rights.Versions()) {
		want.Version = v
		lines := rights.Lines(want.Commands(nil))
		if i == len(rights.Versions())-1 {
			older = lines
		} else if slices.Equal(lines, older) {
			continue
		} else {
			fmt.Fprintf(w.err, "On Proxmox VE %d run this instead:\n", v.Major)
		}
		for _, line := range lines {
			fmt.Fprintln(w.err, "  "+line)
		}
	}
}

// finish looks at what was set up, and tells clients of it.
func (w *wizard) finish(ctx context.Context, path string) error {
	if w.account != "" {
		return w.snippets(path)
	}
	_, out, err := w.examine(ctx, "", "")
	if err != nil {
		return err
	}
	if !w.asJSON {
		short := examined{Verdict: out.Verdict, Problems: out.Problems, Targets: out.Targets}
		for i := range short.Targets {
			short.Targets[i].RootOnly, short.Targets[i].Can = nil, nil
		}
		printExamined(w.err, short)
		fmt.Fprintln(w.err)
	}
	s, err := w.asServer("")
	if err != nil {
		return err
	}
	if w.asJSON {
		if err := w.snippets(path); err != nil {
			return err
		}
	} else {
		if err := w.clients(orDefault(w.clientNames), s, w.writeClients, false, false); err != nil {
			return err
		}
		fmt.Fprintln(w.out, "\nWith that in the client, restart it and ask it: what can you do here?")
	}
	if out.Verdict == "unreachable" {
		return cli.Exit(cli.ExitDown)
	}
	if out.Verdict == "problems" {
		fmt.Fprintln(w.err, "The set-up is there; castellan doctor says what is still to be done.")
	}
	return nil
}

// orDefault keeps the output short where nobody named a client.
func orDefault(names []string) []string {
	if len(names) > 0 {
		return names
	}
	return []string{"claude-desktop", "claude-code", "other"}
}
