package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"castellan/internal/catalog"
	"castellan/internal/catalog/facts"
	"castellan/internal/cli"
	"castellan/internal/gate"
)

// catalogCommand answers from the embedded catalogue: no configuration and no target are needed.
func (a *app) catalogCommand() *cobra.Command {
	root := &cobra.Command{Use: "catalog", Short: "Search and read the API operations of the four products"}
	var products []string
	var limit int
	find := &cobra.Command{Use: "find QUESTION", Short: "Find operations by a question in plain words", Args: cobra.MinimumNArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		c, err := a.plainCatalog()
		if err != nil {
			return err
		}
		if err := knownProducts(products); err != nil {
			return err
		}
		type hit struct {
			Product string  `json:"product"`
			Method  string  `json:"method"`
			Path    string  `json:"path"`
			Score   float64 `json:"score"`
			Summary string  `json:"summary,omitempty"`
		}
		hits := []hit{}
		for _, h := range c.Find(strings.Join(args, " "), catalog.FindOptions{Products: products, Limit: limit}) {
			hits = append(hits, hit{h.Product, h.Method, h.Path, h.Score, h.Summary})
		}
		if cli.JSON(cmd) {
			return cli.PrintJSON(a.out, hits)
		}
		if len(hits) == 0 {
			fmt.Fprintln(a.err, "nothing was found; try other words")
			return cli.Exit(cli.ExitNotFound)
		}
		for _, h := range hits {
			fmt.Fprintf(a.out, "%-4s %-6s %s\n     %s\n", h.Product, h.Method, h.Path, cli.Safe(h.Summary))
		}
		return nil
	}}
	find.Flags().StringSliceVar(&products, "product", nil, "pve, pbs, pmg, pdm; all when not given")
	find.Flags().IntVar(&limit, "limit", 10, "how many at the most")
	list := &cobra.Command{Use: "list", Short: "List all operations with effect and classes", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		c, err := a.plainCatalog()
		if err != nil {
			return err
		}
		if err := knownProducts(products); err != nil {
			return err
		}
		type row struct {
			Product string       `json:"product"`
			Method  string       `json:"method"`
			Path    string       `json:"path"`
			Effect  gate.Effect  `json:"effect"`
			Classes []gate.Class `json:"classes"`
			Task    bool         `json:"task"`
		}
		rows := []row{}
		for _, op := range c.All() {
			if len(products) > 0 && !slices.Contains(products, op.Product) {
				continue
			}
			classes := c.Classes(op)
			if classes == nil {
				classes = []gate.Class{}
			}
			rows = append(rows, row{op.Product, op.Method, op.Path, c.Effect(op), classes, op.Facts.Task != ""})
		}
		if cli.JSON(cmd) {
			return cli.PrintJSON(a.out, rows)
		}
		w := bufio.NewWriter(a.out)
		for _, r := range rows {
			words := make([]string, len(r.Classes))
			for i, k := range r.Classes {
				words[i] = string(k)
			}
			fmt.Fprintf(w, "%-4s %-6s %-7s %s %s\n", r.Product, r.Method, r.Effect, r.Path, strings.Join(words, ","))
		}
		return w.Flush()
	}}
	list.Flags().StringSliceVar(&products, "product", nil, "pve, pbs, pmg, pdm; all when not given")
	show := &cobra.Command{Use: "show PRODUCT METHOD PATH", Short: "Show one operation: parameters, classes, privileges", Args: cobra.ExactArgs(3), RunE: func(cmd *cobra.Command, args []string) error {
		c, err := a.plainCatalog()
		if err != nil {
			return err
		}
		if err := knownProducts(args[:1]); err != nil {
			return err
		}
		id := strings.ToUpper(args[1]) + " " + args[2]
		op, ok := c.Lookup(args[0], id)
		if !ok {
			if op, _, err = c.Match(args[0], strings.ToUpper(args[1]), args[2]); err != nil {
				return gate.Fail(gate.ErrNotFound, "castellan catalog find, in plain words.", "%s has no operation %s: %v", args[0], id, err)
			}
		}
		d := describeOperation(c, op)
		if cli.JSON(cmd) {
			return cli.PrintJSON(a.out, d)
		}
		return printDescription(a.out, d)
	}}
	root.AddCommand(find, list, show, a.refreshCommand())
	return root
}

func knownProducts(products []string) error {
	for _, p := range products {
		if !slices.Contains(catalog.Products(), p) {
			return cli.Usage{Err: fmt.Errorf("%q is none of %s", p, strings.Join(catalog.Products(), ", "))}
		}
	}
	return nil
}

// plainCatalog is the embedded one, with descriptions that a person has accepted where there is a configuration.
func (a *app) plainCatalog() (*catalog.Catalog, error) {
	c, err := catalog.New(catalog.Config{Facts: facts.Open()})
	if err != nil {
		return nil, err
	}
	path, err := a.configPath()
	if err != nil {
		return c, nil
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(path), acceptedFolder)); errors.Is(err, os.ErrNotExist) {
		return c, nil
	}
	return c, acceptedDescriptions(c, filepath.Dir(path))
}
