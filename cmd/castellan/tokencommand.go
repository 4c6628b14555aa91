package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"castellan/internal/cli"
	"castellan/internal/oauth"
	"castellan/internal/seal"
)

// tokenCommand keeps the bearer tokens of programs that cannot sign in, and the connections of clients that people let in.
func (a *app) tokenCommand() *cobra.Command {
	root := &cobra.Command{Use: "token", Short: "Make, list and revoke the tokens by which agents come in over HTTP"}
	root.AddCommand(a.tokenMintCommand(), a.tokenListCommand(), a.tokenRevokeCommand())
	return root
}

func (a *app) tokenMintCommand() *cobra.Command {
	var m oauth.MintRequest
	var until, out string
	cmd := &cobra.Command{Use: "mint", Short: "Make a bearer token for a program; it is shown once, or written into a file (0600)", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		var err error
		if m.Until, err = parseUntil(until, time.Now()); err != nil {
			return cli.Usage{Err: err}
		}
		if out != "" {
			if _, err := os.Lstat(out); err == nil {
				return cli.Usage{Err: fmt.Errorf("invalid argument --out: %s is there already; nothing is overwritten", out)}
			} else if !errors.Is(err, fs.ErrNotExist) {
				return cli.Usage{Err: fmt.Errorf("invalid argument --out: %w", err)}
			}
		}
		return a.within(cmd.Context(), func(h *house) error {
			t, err := h.clients.Mint(cmd.Context(), a.person(), m)
			if err != nil {
				return err
			}
			if out != "" {
				// A token that nobody has is revoked again.
				if err := seal.Create(out, append(t.Token.Bytes(), '\n')); err != nil {
					return errors.Join(err, h.clients.RevokeToken(cmd.Context(), a.person(), t.ID))
				}
			}
			if cli.JSON(cmd) {
				row := map[string]any{"id": t.ID, "agent": t.Agent, "person": m.Person, "roles": t.Roles, "until": t.Until, "url": h.url + "/mcp"}
				if out == "" {
					row["token"] = t.Token.Reveal()
				} else {
					row["file"] = out
				}
				return cli.PrintJSON(a.out, row)
			}
			if out == "" {
				fmt.Fprintln(a.out, t.Token.Reveal())
			}
			where := "It is not shown again."
			if out != "" {
				where = "It is in " + out + "."
			}
			fmt.Fprintf(a.err, "Token %s: agent %s for %s, %s, until %s, at %s. %s\n", t.ID, t.Agent, cli.Safe(m.Person), strings.Join(t.Roles, ","), t.Until.Local().Format("2006-01-02 15:04"), h.url+"/mcp", cli.Safe(where))
			return nil
		})
	}}
	f := cmd.Flags()
	f.StringVar(&m.Name, "name", "", "what tells it from the person's other tokens")
	f.StringVar(&m.Agent, "agent", "", "how policy and audit call whoever holds it; the name when left out")
	f.StringVar(&m.Person, "person", "", "the account that it acts for (castellan people list)")
	f.StringSliceVar(&m.Roles, "roles", nil, "viewer, operator; never more than the account has")
	f.StringVar(&until, "until", "", "when it ends: a day (2027-01-31), a time, or how long it lasts (720h, 30d); 90 days when left out")
	f.StringVar(&out, "out", "", "new file for the token, 0600; it is printed when left out")
	for _, name := range []string{"name", "person", "roles"} {
		_ = cmd.MarkFlagRequired(name) // they are there
	}
	return cmd
}

// parseUntil reads a day, a time, or a length from now; "" is the zero time.
func parseUntil(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, form := range []string{time.RFC3339, "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(form, text, time.Local); err == nil {
			return t, nil
		}
	}
	d, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 12)
		d = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || d <= 0 {
		return time.Time{}, fmt.Errorf("invalid argument %q for --until: give a day such as 2027-01-31, a time, or a length such as 30d", text)
	}
	return now.Add(d), nil
}

func (a *app) tokenListCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{Use: "list", Short: "List tokens and the connections of clients; never the secrets", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return a.within(cmd.Context(), func(h *house) error {
			list, err := h.clients.Tokens(cmd.Context())
			if err != nil {
				return err
			}
			shown := []oauth.TokenInfo{}
			for _, t := range list {
				if all || t.Live(time.Now()) {
					shown = append(shown, t)
				}
			}
			if cli.JSON(cmd) {
				return cli.PrintJSON(a.out, map[string]any{"tokens": shown})
			}
			w := tabwriter.NewWriter(a.out, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "ID\tKIND\tAGENT\tPERSON\tROLES\tSINCE\tUNTIL\tSTATE")
			for _, t := range shown {
				state := "live"
				if !t.Ended.IsZero() {
					state = "revoked"
				} else if !t.Live(time.Now()) {
					state = "expired"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.ID, t.Kind, cli.Safe(t.Agent), cli.Safe(t.Person), strings.Join(t.Roles, ","),
					t.Since.Local().Format("2006-01-02 15:04"), t.Expires.Local().Format("2006-01-02 15:04"), state)
			}
			return w.Flush()
		})
	}}
	cmd.Flags().BoolVar(&all, "all", false, "those too that have ended")
	return cmd
}

func (a *app) tokenRevokeCommand() *cobra.Command {
	var client bool
	cmd := &cobra.Command{Use: "revoke ID", Short: "End a token or a connection by its id, or with --client all that a client has", Args: func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return cli.Usage{Err: errors.New("give one id; castellan token list shows them")}
		}
		return nil
	}, RunE: func(cmd *cobra.Command, args []string) error {
		return a.within(cmd.Context(), func(h *house) error {
			revoke := h.clients.RevokeToken
			if client {
				revoke = h.clients.RevokeClient
			}
			if err := revoke(cmd.Context(), a.person(), args[0]); err != nil {
				return err
			}
			return a.said(cmd, args[0], "is revoked")
		})
	}}
	cmd.Flags().BoolVar(&client, "client", false, "the id is a client's")
	return cmd
}
