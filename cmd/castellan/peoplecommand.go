package main

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"castellan/internal/cli"
	"castellan/internal/gate"
	"castellan/internal/identity"
)

// peopleCommand keeps the accounts of the people who approve. Whoever holds this machine's keys may.
func (a *app) peopleCommand() *cobra.Command {
	root := &cobra.Command{Use: "people", Short: "Keep the accounts of the people who sign in and approve"}
	root.AddCommand(a.peopleListCommand(), a.peopleAddCommand(), a.peoplePasswordCommand(), a.peopleRolesCommand(), a.peopleCodeCommand(), a.peopleLoginCommand(), a.peoplePasskeysCommand())
	for _, c := range []struct {
		use, short, done string
		do               func(cmd *cobra.Command, h *house, name string) error
	}{
		{"disable NAME", "Close an account: its sessions and tokens end", "is closed", func(cmd *cobra.Command, h *house, name string) error {
			return h.people.Disable(cmd.Context(), a.person(), name, true)
		}},
		{"enable NAME", "Open a closed account again", "is open again", func(cmd *cobra.Command, h *house, name string) error {
			return h.people.Disable(cmd.Context(), a.person(), name, false)
		}},
		{"remove NAME", "Remove an account with its passkeys, sessions and what was given in its name", "is removed", func(cmd *cobra.Command, h *house, name string) error {
			return errors.Join(h.people.RemoveAccount(cmd.Context(), a.person(), name), h.clients.RevokePerson(cmd.Context(), a.person(), name))
		}},
	} {
		root.AddCommand(&cobra.Command{Use: c.use, Short: c.short, Args: oneName, RunE: func(cmd *cobra.Command, args []string) error {
			return a.within(cmd.Context(), func(h *house) error {
				if err := c.do(cmd, h, args[0]); err != nil {
					return err
				}
				return a.said(cmd, args[0], c.done)
			})
		}})
	}
	return root
}

func oneName(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return cli.Usage{Err: errors.New("give one name")}
	}
	return nil
}

func (a *app) said(cmd *cobra.Command, name, what string) error {
	if cli.JSON(cmd) {
		return cli.PrintJSON(a.out, map[string]any{"name": name, "ok": true})
	}
	fmt.Fprintf(a.out, "%s %s\n", cli.Safe(name), what)
	return nil
}

func (a *app) peopleListCommand() *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List the accounts", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return a.within(cmd.Context(), func(h *house) error {
			all, err := h.people.Accounts(cmd.Context())
			if err != nil {
				return err
			}
			keys, err := h.people.Credentials(cmd.Context(), "")
			if err != nil {
				return err
			}
			passkeys := map[string]int{}
			for _, k := range keys {
				passkeys[k.Person]++
			}
			if cli.JSON(cmd) {
				rows := []map[string]any{}
				for _, p := range all {
					row := map[string]any{"name": p.Name, "roles": p.Roles, "disabled": p.Disabled, "password": p.Password, "passkeys": passkeys[p.Name], "logins": p.Logins}
					if !p.Until.IsZero() {
						row["until"] = p.Until
					}
					rows = append(rows, row)
				}
				return cli.PrintJSON(a.out, map[string]any{"people": rows})
			}
			w := tabwriter.NewWriter(a.out, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tROLES\tPASSWORD\tPASSKEYS\tUNTIL\tSTATE")
			for _, p := range all {
				until, state := "-", "open"
				if !p.Until.IsZero() {
					until = p.Until.Local().Format("2006-01-02 15:04")
				}
				if p.Disabled {
					state = "closed"
				}
				fmt.Fprintf(w, "%s\t%s\t%t\t%d\t%s\t%s\n", cli.Safe(p.Name), cli.Safe(strings.Join(p.Roles, ",")), p.Password, passkeys[p.Name], until, state)
			}
			return w.Flush()
		})
	}}
}

func (a *app) peopleAddCommand() *cobra.Command {
	var n identity.NewAccount
	var lasts time.Duration
	var file string
	var without bool
	cmd := &cobra.Command{Use: "add NAME", Short: "Make an account; its password is asked for, or read from a file", Args: oneName, RunE: func(cmd *cobra.Command, args []string) error {
		n.Name = args[0]
		if lasts > 0 {
			n.Until = time.Now().Add(lasts)
		}
		if !without {
			var err error
			if n.Password, err = a.newPassword(cmd, file); err != nil {
				return err
			}
		}
		return a.within(cmd.Context(), func(h *house) error {
			if _, err := h.people.AddAccount(cmd.Context(), a.person(), n); err != nil {
				return err
			}
			return a.said(cmd, n.Name, "has an account with the roles "+strings.Join(n.Roles, ", ")+" at "+h.url)
		})
	}}
	f := cmd.Flags()
	f.StringSliceVar(&n.Roles, "role", []string{gate.RoleApprover}, "viewer, operator, approver, administrator, or a role of policy; repeatable")
	f.StringVar(&n.Display, "display", "", "the name as pages show it")
	f.DurationVar(&lasts, "for", 0, "how long the account lasts, such as 720h; for ever when left out")
	f.StringVar(&file, "password-file", "", "file (0600) that holds the password")
	f.BoolVar(&without, "no-password", false, "none: sign-in by passkey, or from outside")
	return cmd
}

func (a *app) peoplePasswordCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{Use: "password NAME", Short: "Give an account a new password; its sessions end", Args: oneName, RunE: func(cmd *cobra.Command, args []string) error {
		password, err := a.newPassword(cmd, file)
		if err != nil {
			return err
		}
		return a.within(cmd.Context(), func(h *house) error {
			if err := h.people.SetPassword(cmd.Context(), a.person(), args[0], password); err != nil {
				return err
			}
			return a.said(cmd, args[0], "has a new password")
		})
	}}
	cmd.Flags().StringVar(&file, "password-file", "", "file (0600) that holds the password")
	return cmd
}

// newPassword takes a password from a file, or asks for it twice.
func (a *app) newPassword(cmd *cobra.Command, file string) (string, error) {
	if file != "" {
		b, err := readSecret(file)
		if err != nil {
			return "", err
		}
		return strings.TrimRight(string(b), "\r\n"), nil
	}
	if !a.terminal() {
		return "", cli.Usage{Err: errors.New("this is no terminal: name a file (0600) with --password-file, or give --no-password")}
	}
	c := cli.Config{In: a.in, Err: a.err, Terminal: true}
	first, err := c.Password(cmd.Context(), "New password: ")
	if err != nil {
		return "", err
	}
	again, err := c.Password(cmd.Context(), "Once more: ")
	if err != nil {
		return "", err
	}
	if first != again {
		return "", cli.Usage{Err: errors.New("the two are not the same; nothing has changed")}
	}
	return first, nil
}

func (a *app) peopleRolesCommand() *cobra.Command {
	var lasts time.Duration
	cmd := &cobra.Command{Use: "roles NAME ROLE…", Short: "Give an account these roles, and no others", Args: func(_ *cobra.Command, args []string) error {
		if len(args) < 2 {
			return cli.Usage{Err: errors.New("give a name, then the roles: " + strings.Join(gate.Roles(), ", "))}
		}
		return nil
	}, RunE: func(cmd *cobra.Command, args []string) error {
		var until time.Time
		if lasts > 0 {
			until = time.Now().Add(lasts)
		}
		return a.within(cmd.Context(), func(h *house) error {
			if err := h.people.SetRoles(cmd.Context(), a.person(), args[0], args[1:], until); err != nil {
				return err
			}
			return a.said(cmd, args[0], "has the roles "+strings.Join(args[1:], ", "))
		})
	}}
	cmd.Flags().DurationVar(&lasts, "for", 0, "how long the account lasts, such as 8h; for ever when left out")
	return cmd
}

func (a *app) peopleCodeCommand() *cobra.Command {
	return &cobra.Command{Use: "code NAME", Short: "Print a one-time code with which this person enrols a passkey within an hour", Args: oneName, RunE: func(cmd *cobra.Command, args []string) error {
		return a.within(cmd.Context(), func(h *house) error {
			if err := h.people.PasskeyProblem(); err != nil {
				return err
			}
			code, err := h.people.EnrolmentCode(cmd.Context(), a.person(), args[0])
			if err != nil {
				return err
			}
			if cli.JSON(cmd) {
				return cli.PrintJSON(a.out, map[string]any{"name": args[0], "code": code, "url": h.url + "/enrol"})
			}
			fmt.Fprintf(a.out, "%s\nGive it to %s by a way that no agent reads; it is used up at %s/enrol\n", code, cli.Safe(args[0]), h.url)
			return nil
		})
	}}
}

func (a *app) peopleLoginCommand() *cobra.Command {
	var l identity.Login
	cmd := &cobra.Command{Use: "login NAME", Short: "Let an identity from outside sign in as this account, in place of earlier ones", Args: oneName, RunE: func(cmd *cobra.Command, args []string) error {
		var logins []identity.Login
		if l.Way != "" {
			logins = append(logins, l)
		}
		return a.within(cmd.Context(), func(h *house) error {
			if err := h.people.SetLogins(cmd.Context(), a.person(), args[0], logins); err != nil {
				return err
			}
			return a.said(cmd, args[0], fmt.Sprintf("has %d ways in from outside", len(logins)))
		})
	}}
	f := cmd.Flags()
	f.StringVar(&l.Way, "way", "", "oidc, realm or access; none takes all away")
	f.StringVar(&l.Provider, "provider", "", "name of the provider or realm in the settings")
	f.StringVar(&l.Subject, "subject", "", "the identity there")
	f.StringVar(&l.Email, "email", "", "its address, in place of the subject")
	return cmd
}

func (a *app) peoplePasskeysCommand() *cobra.Command {
	var drop string
	cmd := &cobra.Command{Use: "passkeys [NAME]", Short: "List passkeys, or remove one", Args: cobra.MaximumNArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		return a.within(cmd.Context(), func(h *house) error {
			if drop != "" {
				if err := h.people.DropCredential(cmd.Context(), a.person(), drop); err != nil {
					return err
				}
				return a.said(cmd, drop, "is removed")
			}
			list, err := h.people.Credentials(cmd.Context(), strings.Join(args, ""))
			if err != nil {
				return err
			}
			if cli.JSON(cmd) {
				return cli.PrintJSON(a.out, map[string]any{"passkeys": append([]identity.Credential{}, list...)})
			}
			for _, k := range list {
				fmt.Fprintf(a.out, "%s  %s %q, enrolled %s, approves from %s\n", k.ID, cli.Safe(k.Person), k.Name, k.Enrolled.Local().Format("2006-01-02 15:04"), k.MayApprove.Local().Format("2006-01-02 15:04"))
			}
			return nil
		})
	}}
	cmd.Flags().StringVar(&drop, "remove", "", "the passkey with this id")
	return cmd
}
