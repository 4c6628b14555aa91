// Command gen writes the compact, embedded form of the API facts from the folder named by CASTELLAN_SCHEMA
// (or the first argument): one JSON array of operations a product, as published, without descriptions.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
)

type operation struct {
	Path        string                     `json:"path"`
	Method      string                     `json:"method"`
	Name        string                     `json:"name"`
	Stream      string                     `json:"stream"`
	Protected   bool                       `json:"protected"`
	ProxyTo     string                     `json:"proxyto"`
	AllowToken  *bool                      `json:"allowtoken"`
	Expose      bool                       `json:"expose_credentials"`
	Download    bool                       `json:"download_allowed"`
	Task        string                     `json:"task"`
	Incomplete  any                        `json:"incomplete"`
	Permissions json.RawMessage            `json:"permissions"`
	Params      map[string]json.RawMessage `json:"params"`
	ParamsX     struct {
		Additional any `json:"additionalProperties"`
	} `json:"paramsx"`
	Returns json.RawMessage `json:"returns"`
}

type table struct {
	index map[string]int
	list  []json.RawMessage
}

// add returns the 1-based number of a value, in canonical form so that equal schemas meet.
func (t *table) add(raw json.RawMessage) (int, error) {
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return 0, err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return 0, err
	}
	if i, ok := t.index[string(b)]; ok {
		return i, nil
	}
	t.list = append(t.list, b)
	t.index[string(b)] = len(t.list)
	return len(t.list), nil
}

var sources = []struct{ product, version, file, formats string }{
	{"pve", "9.2.11", "pve-9.2.11.facts.json", "pve.formats.facts.json"},
	{"pbs", "4.2", "pbs.facts.json", ""},
	{"pmg", "9.1.0", "pmg.facts.json", ""},
	{"pdm", "1.1.6", "pdm.facts.json", ""},
}

func main() {
	dir := os.Getenv("CASTELLAN_SCHEMA")
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	if dir == "" {
		fmt.Fprintln(os.Stderr, "gen: name the folder of the API facts, as argument or in CASTELLAN_SCHEMA")
		os.Exit(2)
	}
	for _, s := range sources {
		if err := write(dir, s.product, s.version, s.file, s.formats); err != nil {
			fmt.Fprintf(os.Stderr, "gen: %s: %v\n", s.product, err)
			os.Exit(1)
		}
	}
}

func write(dir, product, version, file, formats string) error {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return err
	}
	var ops []operation
	if err := json.Unmarshal(b, &ops); err != nil {
		return err
	}
	sort.SliceStable(ops, func(i, j int) bool {
		if ops[i].Path != ops[j].Path {
			return ops[i].Path < ops[j].Path
		}
		return ops[i].Method < ops[j].Method
	})
	schemas, perms := &table{index: map[string]int{}}, &table{index: map[string]int{}}
	out := []map[string]any{}
	for _, o := range ops {
		flags := ""
		set := func(on bool, letter string) {
			if on {
				flags += letter
			}
		}
		set(o.Protected, "p")
		set(o.ProxyTo == "node", "n")
		set(o.ProxyTo == "master", "m")
		set(o.AllowToken != nil && !*o.AllowToken, "t")
		set(o.Expose, "e")
		set(o.Download, "d")
		set(o.Incomplete != nil, "i")
		set(o.ParamsX.Additional == true, "a")
		if len(o.Permissions) == 0 {
			o.Permissions = json.RawMessage("null")
		}
		perm, err := perms.add(o.Permissions)
		if err != nil {
			return err
		}
		row := map[string]any{"p": o.Path, "m": o.Method, "a": perm - 1}
		params := map[string]int{}
		names := make([]string, 0, len(o.Params))
		for n := range o.Params {
			names = append(names, n)
		}
		sort.Strings(names)
		for _, n := range names {
			if params[n], err = schemas.add(o.Params[n]); err != nil {
				return err
			}
		}
		row["i"] = params
		if len(o.Returns) > 0 && string(o.Returns) != "null" {
			if row["r"], err = schemas.add(o.Returns); err != nil {
				return err
			}
		}
		for k, v := range map[string]string{"n": o.Name, "f": flags, "s": o.Stream, "t": o.Task} {
			if v != "" {
				row[k] = v
			}
		}
		out = append(out, row)
	}
	named := map[string]int{}
	if formats != "" {
		b, err := os.ReadFile(filepath.Join(dir, formats))
		if err != nil {
			return err
		}
		var in map[string]json.RawMessage
		if err := json.Unmarshal(b, &in); err != nil {
			return err
		}
		names := make([]string, 0, len(in))
		for n := range in {
			names = append(names, n)
		}
		sort.Strings(names)
		for _, n := range names {
			if named[n], err = schemas.add(in[n]); err != nil {
				return err
			}
		}
	}
	j, err := json.Marshal(map[string]any{"v": version, "s": schemas.list, "p": perms.list, "f": named, "o": out})
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	z, err := gzip.NewWriterLevel(&buf, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(j); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(product+".json.gz", buf.Bytes(), 0o644)
}
