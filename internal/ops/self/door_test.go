package self

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/ops/opstest"
)

var update = flag.Bool("update", false, "write the expectations anew")

var only = flag.String("only", "", "one case of TestUndo")

// TestDoor runs testdata/*.txtar: call_operation with the arguments of "call" on the small site and the lines of "site".
func TestDoor(t *testing.T) {
	base, err := os.ReadFile("../pve/testdata/small.site")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no expectations: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			v, err := opstest.New(string(base))
			if err != nil {
				t.Fatal(err)
			}
			v.Compose = map[string]opstest.Run{"list_guests": func(context.Context, gate.View, json.RawMessage) (any, *gate.Draft, error) {
				return map[string]string{"called": "list_guests"}, nil, nil
			}}
			c := Config{Catalog: v.Catalog, Estate: estate.New()}
			var in callOperationIn
			for i, f := range a.Files {
				switch f.Name {
				case "site":
					if err := v.Add(string(f.Data)); err != nil {
						t.Fatal(err)
					}
				case "user":
					v.Info.User = strings.TrimSpace(string(f.Data))
				case "scope":
					v.Limit = func(o gate.ObjectFacts) bool { return o.Object.ID == strings.TrimSpace(string(f.Data)) }
				case "call":
					in = callOperationIn{}
					if err := json.Unmarshal(f.Data, &in); err != nil {
						t.Fatal(err)
					}
				case "want":
					answer, draft, err := c.call(t.Context(), v, in)
					got := opstest.Show(v.Catalog, answer, draft, err)
					if strings.Contains(got, "PROBLEM") || strings.Contains(got, "bare error") {
						t.Errorf("%s\n%s", in.Operation, got)
					}
					if *update {
						a.Files[i].Data = []byte(got)
					} else if d := cmp.Diff(string(f.Data), got); d != "" {
						t.Errorf("%s\n(-want +got)\n%s", in.Operation, d)
					}
				default:
					t.Fatalf("unknown section %q", f.Name)
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
