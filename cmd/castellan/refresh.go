package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"castellan/internal/catalog"
	"castellan/internal/cli"
	"castellan/internal/gate"
	"castellan/internal/seal"
)

// acceptedFolder, beside the configuration, holds the descriptions that a person has accepted, and their pins.
const acceptedFolder = "accepted"

// acceptedDescriptions merges what was accepted; a file that is not what was pinned is an error, not a shrug.
func acceptedDescriptions(c *catalog.Catalog, dir string) error {
	pins := filepath.Join(dir, acceptedFolder, "pins.json")
	b, err := os.ReadFile(pins)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read accepted API descriptions: %w", err)
	}
	var of map[string]string // product → SHA-256
	if err := json.Unmarshal(b, &of); err != nil {
		return fmt.Errorf("read accepted API descriptions: %s: %w", pins, err)
	}
	for product, pin := range of {
		if !knownProduct(product) {
			return fmt.Errorf("read accepted API descriptions: %s names the product %q", pins, product)
		}
		doc, err := os.ReadFile(filepath.Join(dir, acceptedFolder, product+".json"))
		if err != nil {
			return fmt.Errorf("read accepted API descriptions: %w", err)
		}
		d, err := catalog.OpenDoc(doc, pin)
		if err != nil {
			return fmt.Errorf("read accepted API descriptions: %s: %w", product, err)
		}
		if _, err := c.Merge(d); err != nil {
			return fmt.Errorf("merge accepted API description of %s: %w", product, err)
		}
	}
	return nil
}

func knownProduct(p string) bool { return knownProducts([]string{p}) == nil }

// refreshCommand compares a host's own API description with the catalogue and keeps it when a person says yes.
func (a *app) refreshCommand() *cobra.Command {
	var target, accept string
	cmd := &cobra.Command{Use: "refresh", Short: "Read a target's own API description, show what it adds, and use it once you accept", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		s, path, _, err := a.load()
		if err != nil {
			return err
		}
		a.overseer = true
		h, err := a.house(cmd.Context())
		if err != nil {
			return err
		}
		h.start()
		defer h.end(5 * time.Second)
		kind := ""
		for _, t := range s.Targets {
			if t.Name == target || target == "" && len(s.Targets) == 1 {
				target, kind = t.Name, t.Kind
			}
		}
		if kind == "" {
			return cli.Usage{Err: errors.New("name one target with --target")}
		}
		b, err := h.client.Description(cmd.Context(), target)
		if err != nil {
			return gate.Fail(gate.ErrUnavailable, "The embedded catalogue stays in use; nothing is needed for reading and changing.", "%v", err)
		}
		doc, err := catalog.ParseApidoc(kind, b)
		if err != nil {
			return gate.Fail(gate.ErrInvalid, "The embedded catalogue stays in use.", "%s does not publish a description that can be read: %v", target, err)
		}
		diff, err := h.catalog.Compare(doc)
		if err != nil {
			return err
		}
		if cli.JSON(cmd) {
			if err := cli.PrintJSON(a.out, map[string]any{"target": target, "sha256": doc.SHA256(), "diff": diff}); err != nil {
				return err
			}
		} else {
			printDiff(a.out, target, doc.SHA256(), diff)
		}
		if diff.Empty() && accept == "" {
			fmt.Fprintln(a.err, "It adds nothing; nothing was kept.")
			return nil
		}
		if accept == "" && a.terminal() {
			fmt.Fprint(a.err, "Use it from now on? Type yes: ")
			line, _ := bufio.NewReader(a.in).ReadString('\n') // no line is no yes
			if strings.TrimSpace(line) == "yes" {
				accept = doc.SHA256()
			}
		}
		if accept != doc.SHA256() {
			fmt.Fprintf(a.err, "Nothing was kept. Accept it with: castellan catalog refresh --target %s --accept %s\n", target, doc.SHA256())
			return cli.Exit(cli.ExitApproval)
		}
		if err := keepDescription(filepath.Dir(path), kind, doc); err != nil {
			return err
		}
		fmt.Fprintf(a.out, "The description of %s is in use from the next start on.\n", target)
		return h.gate.Note(cmd.Context(), a.person(), "settings", "API description of "+kind+" accepted: "+doc.SHA256())
	}}
	cmd.Flags().StringVar(&target, "target", "", "the target whose description is read")
	cmd.Flags().StringVar(&accept, "accept", "", "SHA-256 of the description that was shown")
	return cmd
}

func keepDescription(dir, product string, doc *catalog.Doc) error {
	folder := filepath.Join(dir, acceptedFolder)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("keep API description: %w", err)
	}
	pins := map[string]string{}
	if b, err := os.ReadFile(filepath.Join(folder, "pins.json")); err == nil {
		if err := json.Unmarshal(b, &pins); err != nil {
			return fmt.Errorf("keep API description: pins.json: %w", err)
		}
	}
	pins[product] = doc.SHA256()
	b, err := json.MarshalIndent(pins, "", "  ")
	if err != nil {
		return err
	}
	if err := seal.Replace(filepath.Join(folder, product+".json"), doc.Bytes()); err != nil {
		return fmt.Errorf("keep API description: %w", err)
	}
	return seal.Replace(filepath.Join(folder, "pins.json"), b)
}

func printDiff(w io.Writer, target, sum string, d catalog.Diff) {
	fmt.Fprintf(w, "Description of %s, SHA-256 %s\n", target, sum)
	for _, part := range []struct {
		name  string
		lines []string
	}{{"new operations (judged as the worst until somebody has judged them)", d.Operations}, {"new parameters", d.Params}, {"stricter", d.Raised},
		{"left out", d.Refused}, {"not there on this host", d.Missing}} {
		if len(part.lines) == 0 {
			continue
		}
		fmt.Fprintf(w, "%s: %d\n", part.name, len(part.lines))
		for _, l := range part.lines[:min(len(part.lines), 40)] {
			fmt.Fprintln(w, "  "+cli.Safe(l))
		}
	}
}
