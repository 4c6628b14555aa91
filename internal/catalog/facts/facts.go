// Package facts holds the four Proxmox APIs as data: paths, parameters, permissions, tasks and result
// shapes of every documented operation. It holds no judgement; that is catalog's. The embedded files are
// written by the generator in gen from the published API trees.
package facts

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

//go:generate go run castellan/internal/catalog/facts/gen

//go:embed pve.json.gz pbs.json.gz pmg.json.gz pdm.json.gz
var files embed.FS

// Product is one of the four Proxmox products.
type Product string

// The four products.
const (
	PVE Product = "pve"
	PBS Product = "pbs"
	PMG Product = "pmg"
	PDM Product = "pdm"
)

// Products lists all products in their usual order.
func Products() []Product { return []Product{PVE, PBS, PMG, PDM} }

// Task says where an operation's answer holds the UPID of the task that it starts.
type Task string

// The places of a UPID in an answer; the empty Task means that no task is started.
const (
	TaskData         Task = "data"      // the answer itself
	TaskUPID         Task = "data.upid" // in the key upid of the answer
	TaskUndocumented Task = "data!"     // the answer itself, although documented as null
)

// API is the description of one product.
type API struct {
	Product    Product
	Version    string
	Operations []*Operation       // sorted by path, then method
	Formats    map[string]*Schema // property strings that schemas name by format only (PVE)
}

// Operation is one documented method of one path.
type Operation struct {
	Product           Product
	Path              string // template, e.g. /nodes/{node}/qemu/{vmid}/config
	Method            string // GET, POST, PUT, DELETE
	Name              string // PVE and PMG only
	Protected         bool   // run by the root daemon
	ProxyTo           string // "node", "master" or empty
	NoToken           bool   // not reachable with an API token
	ExposeCredentials bool
	Download          bool   // streams a file to the caller
	Stream            string // "download", "upload" or empty (PBS, PDM)
	Task              Task
	Incomplete        bool               // the published tree lacks part of this operation
	Permissions       json.RawMessage    // the product's own form; "null" = root only
	Params            map[string]*Schema // path placeholders included; indexed names as net[n]
	Additional        bool               // parameters outside Params are accepted
	Returns           *Schema            // a hint only: the published trees err; nil when not told
}

// Schema describes one value.
type Schema struct {
	Type            string             `json:"type,omitempty"`
	Format          *Format            `json:"format,omitempty"`
	Enum            []any              `json:"enum,omitempty"`
	Pattern         string             `json:"pattern,omitempty"`
	Minimum         *json.Number       `json:"minimum,omitempty"`
	Maximum         *json.Number       `json:"maximum,omitempty"`
	MinLength       *int               `json:"minLength,omitempty"`
	MaxLength       *int               `json:"maxLength,omitempty"`
	Optional        bool               `json:"optional,omitempty"`
	Default         any                `json:"default,omitempty"`
	DefaultComputed bool               `json:"defaultComputed,omitempty"`
	Requires        string             `json:"requires,omitempty"`
	Index           []int              `json:"index,omitempty"` // first and last number of an indexed name such as net[n]
	Properties      map[string]*Schema `json:"properties,omitempty"`
	Items           *Schema            `json:"items,omitempty"`
	OneOf           []*Schema          `json:"oneOf,omitempty"`
	InstanceTypes   []string           `json:"instance-types,omitempty"` // values of TypeProperty for which this key exists
	TypeProperty    string             `json:"type-property,omitempty"`
	DefaultKey      bool               `json:"default_key,omitempty"` // may be given without its name in a property string
	Alias           string             `json:"alias,omitempty"`
	KeyAlias        string             `json:"keyAlias,omitempty"`
	Additional      json.RawMessage    `json:"additionalProperties,omitempty"`
	Links           json.RawMessage    `json:"links,omitempty"`
}

// Format is either a name, or the schema of a property string (an object, or a list).
type Format struct {
	Name       string
	Schema     *Schema // nil for a named format
	DefaultKey string  // PBS and PDM name the nameless key here
}

// UnmarshalJSON takes a string or a schema object.
func (f *Format) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &f.Name)
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	if k, ok := raw["default_key"]; ok {
		if err := json.Unmarshal(k, &f.DefaultKey); err != nil {
			return err
		}
		delete(raw, "default_key")
		var err error
		if b, err = json.Marshal(raw); err != nil {
			return err
		}
	}
	f.Schema = &Schema{}
	return json.Unmarshal(b, f.Schema)
}

// Facts decodes each product's description at most once, when it is first asked for.
type Facts struct {
	once map[Product]func() (*API, error)
}

// Open returns the embedded descriptions, nothing decoded yet.
func Open() *Facts {
	f := &Facts{once: map[Product]func() (*API, error){}}
	for _, p := range Products() {
		f.once[p] = sync.OnceValues(func() (*API, error) { return decode(p) })
	}
	return f
}

// API returns one product's description; it is shared and must not be changed.
func (f *Facts) API(p Product) (*API, error) {
	load, ok := f.once[p]
	if !ok {
		return nil, fmt.Errorf("load API facts: unknown product %q", p)
	}
	return load()
}

// packed is the file form: schemas once each, operations refer to them by number (0 = none).
type packed struct {
	Version string            `json:"v"`
	Schemas []json.RawMessage `json:"s"`
	Perms   []json.RawMessage `json:"p"`
	Formats map[string]int    `json:"f"`
	Ops     []packedOp        `json:"o"`
}

type packedOp struct {
	Path    string         `json:"p"`
	Method  string         `json:"m"`
	Name    string         `json:"n"`
	Flags   string         `json:"f"` // letters: see decode
	Stream  string         `json:"s"`
	Task    Task           `json:"t"`
	Perm    int            `json:"a"`
	Params  map[string]int `json:"i"`
	Returns int            `json:"r"`
}

func decode(p Product) (*API, error) {
	b, err := files.ReadFile(string(p) + ".json.gz")
	if err != nil {
		return nil, fmt.Errorf("load API facts of %s: %w", p, err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("load API facts of %s: %w", p, err)
	}
	if b, err = io.ReadAll(z); err != nil {
		return nil, fmt.Errorf("load API facts of %s: %w", p, err)
	}
	var in packed
	if err := json.Unmarshal(b, &in); err != nil {
		return nil, fmt.Errorf("load API facts of %s: %w", p, err)
	}
	schemas := make([]*Schema, len(in.Schemas)+1)
	for i, raw := range in.Schemas {
		s := &Schema{}
		if err := json.Unmarshal(raw, s); err != nil {
			return nil, fmt.Errorf("load API facts of %s: schema %d: %w", p, i, err)
		}
		schemas[i+1] = s
	}
	api := &API{Product: p, Version: in.Version, Formats: map[string]*Schema{}}
	for name, i := range in.Formats {
		api.Formats[name] = schemas[i]
	}
	for _, o := range in.Ops {
		op := &Operation{Product: p, Path: o.Path, Method: o.Method, Name: o.Name, Stream: o.Stream, Task: o.Task,
			Permissions: in.Perms[o.Perm], Params: make(map[string]*Schema, len(o.Params)), Returns: schemas[o.Returns]}
		for name, i := range o.Params {
			op.Params[name] = schemas[i]
		}
		for _, c := range o.Flags {
			switch c {
			case 'p':
				op.Protected = true
			case 'n':
				op.ProxyTo = "node"
			case 'm':
				op.ProxyTo = "master"
			case 't':
				op.NoToken = true
			case 'e':
				op.ExposeCredentials = true
			case 'd':
				op.Download = true
			case 'i':
				op.Incomplete = true
			case 'a':
				op.Additional = true
			}
		}
		api.Operations = append(api.Operations, op)
	}
	return api, nil
}
