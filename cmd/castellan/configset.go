package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"castellan/internal/cli"
	"castellan/internal/ops/self"
)

func (a *app) configShowCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{Use: "show [PREFIX]", Short: "Show every setting, its value or set-state, and where it comes from", Args: cobra.MaximumNArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		return a.within(cmd.Context(), func(h *house) error {
			list, notes, err := h.runtime.List(cmd.Context())
			if err != nil {
				return err
			}
			var kept []self.Setting
			for _, s := range list {
				if (s.Set || all) && (len(args) == 0 || s.Key == args[0] || strings.HasPrefix(s.Key, args[0]+".")) {
					kept = append(kept, s)
				}
			}
			if cli.JSON(cmd) {
				return cli.PrintJSON(a.out, map[string]any{"settings": kept, "notes": append([]string{}, notes...)})
			}
			w := tabwriter.NewWriter(a.out, 0, 4, 2, ' ', 0)
			for _, s := range kept {
				value := cli.Safe(string(s.Value))
				if !s.Set {
					value = "-"
				}
				from := s.Source
				if s.By != "" {
					from += " (" + cli.Safe(strings.TrimPrefix(s.By, "|")) + ", " + s.At.Local().Format("2006-01-02 15:04") + ")"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\n", s.Key, from, value)
			}
			for _, n := range notes {
				fmt.Fprintln(a.err, "note: "+cli.Safe(n))
			}
			return w.Flush()
		})
	}}
	cmd.Flags().BoolVar(&all, "all", false, "unset keys too")
	return cmd
}

func (a *app) configSetCommand() *cobra.Command {
	return &cobra.Command{Use: "set KEY VALUE", Short: "Set a setting while castellan runs; it lies over file and environment", Args: func(_ *cobra.Command, args []string) error {
		if len(args) != 2 {
			return cli.Usage{Err: errors.New("give a key and a value, such as policy.read_only true or policy.capabilities '[\"snapshot\"]'")}
		}
		return nil
	}, RunE: func(cmd *cobra.Command, args []string) error {
		value := json.RawMessage(args[1])
		if !json.Valid(value) { // a plain word is a text
			value, _ = json.Marshal(args[1]) // a string always has a JSON form
		}
		return a.within(cmd.Context(), func(h *house) error {
			if err := h.runtime.Set(cmd.Context(), a.person(), args[0], value); err != nil {
				return err
			}
			return a.settingDone(cmd, args[0], string(value))
		})
	}}
}

func (a *app) configUnsetCommand() *cobra.Command {
	return &cobra.Command{Use: "unset KEY", Short: "Give a setting back to file and environment", Args: func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return cli.Usage{Err: errors.New("give one key")}
		}
		return nil
	}, RunE: func(cmd *cobra.Command, args []string) error {
		return a.within(cmd.Context(), func(h *house) error {
			if err := h.runtime.Set(cmd.Context(), a.person(), args[0], nil); err != nil {
				return err
			}
			return a.settingDone(cmd, args[0], "unset")
		})
	}}
}

func (a *app) settingDone(cmd *cobra.Command, key, value string) error {
	if cli.JSON(cmd) {
		return cli.PrintJSON(a.out, map[string]string{"key": key, "value": value})
	}
	fmt.Fprintf(a.out, "%s: %s, from the next call on in every process on this store\n", key, value)
	return nil
}
