package main

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "castellan/"

// mayImport says which of our packages a package may name directly. A trailing slash means everything below.
var mayImport = map[string][]string{
	"internal/regex":         {},
	"internal/gate":          {},
	"internal/ledger":        {},
	"internal/seal":          {},
	"internal/catalog/facts": {},
	"internal/catalog":       {"internal/gate", "internal/catalog/facts", "internal/command"},
	"internal/lab":           {"internal/catalog/facts"},
	"internal/policy":        {"internal/gate", "internal/seal", "internal/rights"},
	"internal/settings":      {"internal/gate"},
	"internal/identity":      {"internal/gate", "internal/seal"},
	"internal/oauth":         {"internal/gate", "internal/seal"},
	"internal/store":         {"internal/gate", "internal/identity", "internal/ledger", "internal/seal"},
	"internal/anchor":        {"internal/ledger", "internal/seal"},
	"internal/notify":        {"internal/gate", "internal/seal"},
	"internal/proxmox":       {"internal/gate", "internal/seal", "internal/catalog", "internal/rights"},
	"internal/restored":      {"internal/gate"},
	"internal/frame":         {},
	"internal/lane":          {"internal/command"},
	"internal/bridge":        {"internal/frame", "internal/lane", "internal/patch", "internal/helper", "internal/hostapt"},
	"internal/guestlab":      {},
	"internal/guest":         {"internal/gate", "internal/seal", "internal/catalog", "internal/frame", "internal/lane", "internal/proxmox", "internal/patch", "internal/helper", "internal/channel"},
	"internal/estate":        {"internal/gate", "internal/guest", "internal/proxmox", "internal/catalog"},
	"internal/command":       {},
	"internal/reach":         {"internal/gate", "internal/estate", "internal/catalog", "internal/command"},
	"internal/undo":          {"internal/gate", "internal/estate", "internal/catalog"},
	"internal/backups":       {"internal/gate", "internal/estate", "internal/catalog"},
	"internal/health":        {"internal/gate", "internal/estate"},
	"internal/rights":        {"internal/gate"},
	"internal/patch":         {},
	"internal/helper":        {"internal/patch"},
	"internal/hostapt":       {"internal/patch"},
	"internal/hosts":         {},
	"internal/channel":       {"internal/gate", "internal/hosts", "internal/seal", "internal/patch", "internal/helper"},
	"internal/ops/table":     {"internal/gate"},
	"internal/ops/pve":       {"internal/gate", "internal/ops/table", "internal/estate", "internal/health", "internal/reach", "internal/backups", "internal/rights", "internal/patch", "internal/hostapt", "internal/proxmox", "internal/guest", "internal/lane", "internal/catalog", "internal/helper"},
	"internal/ops/self":      {"internal/gate", "internal/ops/table", "internal/catalog", "internal/catalog/facts", "internal/estate", "internal/rights"},
	"internal/mcpserver":     {"internal/gate", "internal/identity", "internal/catalog"},
	"internal/cli":           {"internal/gate", "internal/identity", "internal/catalog"},
	"internal/front":         {"internal/gate", "internal/identity"},
	"internal/local":         {"internal/gate"},

	"internal/mcpserver/fixtures": {"internal/gate", "internal/mcpserver"},
	"internal/draw":               {},
	"internal/console":            {"internal/draw", "internal/gate", "internal/identity", "internal/oauth", "internal/catalog"},
}

// modules beside the standard library, for the packages that are held to a few.
var mayUse = map[string][]string{
	"internal/gate":          {"github.com/google/jsonschema-go/jsonschema"},
	"internal/ledger":        {"golang.org/x/mod/sumdb/tlog", "golang.org/x/mod/sumdb/note"},
	"internal/seal":          {"golang.org/x/crypto/chacha20poly1305", "golang.org/x/crypto/hkdf", "golang.org/x/sys/windows"},
	"internal/identity":      {"golang.org/x/crypto/argon2"},
	"internal/catalog/facts": {},
	"internal/catalog":       {},
	"internal/lab":           {},
}

// mayCall lists the packages that may have an HTTP client.
var mayCall = []string{"internal/proxmox", "internal/identity", "internal/notify", "internal/anchor", "internal/guest", "internal/oauth"}

type source struct {
	dir, path string
	lines     int
	file      *ast.File
}

func sources(t *testing.T) []source {
	t.Helper()
	root := "../.."
	var out []source
	for _, top := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && (d.Name() == "testdata" || d.Name() == "node_modules") {
				return filepath.SkipDir
			}
			if d.IsDir() || !strings.HasSuffix(path, ".go") {
				return nil
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			h, err := os.Open(path)
			if err != nil {
				return err
			}
			defer h.Close()
			n := 0
			for s := bufio.NewScanner(h); s.Scan(); n++ {
			}
			rel, err := filepath.Rel(root, path)
			out = append(out, source{dir: filepath.ToSlash(filepath.Dir(rel)), path: filepath.ToSlash(rel), lines: n, file: f})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(out) < 50 {
		t.Fatalf("found only %d files: the walk is wrong", len(out))
	}
	return out
}

func TestWhoImportsWhom(t *testing.T) {
	for _, s := range sources(t) {
		if strings.HasSuffix(s.path, "_test.go") || strings.HasPrefix(s.dir, "cmd/") || strings.HasSuffix(s.dir, "/gen") || strings.HasSuffix(s.dir, "test") {
			continue
		}
		ours, known := mayImport[s.dir]
		ours = append(slices.Clone(ours), "internal/regex") // expressions compiled late; depends on nothing
		if !known {
			t.Errorf("%s: package %s has no line in the import rules", s.path, s.dir)
			continue
		}
		others, held := mayUse[s.dir]
		for _, i := range s.file.Imports {
			name := strings.Trim(i.Path.Value, `"`)
			switch {
			case strings.HasPrefix(name, module):
				if !slices.Contains(ours, strings.TrimPrefix(name, module)) {
					t.Errorf("%s may not import %s", s.path, name)
				}
			case held && strings.Contains(strings.Split(name, "/")[0], ".") && !slices.Contains(others, name):
				t.Errorf("%s may not use %s", s.path, name)
			}
		}
	}
}

func TestWhoHasAnHTTPClient(t *testing.T) {
	for _, s := range sources(t) {
		if strings.HasSuffix(s.path, "_test.go") || slices.Contains(mayCall, s.dir) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "http" && slices.Contains([]string{"Client", "DefaultClient", "Get", "Post", "PostForm", "Head", "Transport", "DefaultTransport", "NewRequestWithContext"}, sel.Sel.Name) {
				t.Errorf("%s uses http.%s", s.path, sel.Sel.Name)
			}
			return true
		})
	}
}

func TestOnlyTheGateMintsPermits(t *testing.T) {
	for _, s := range sources(t) {
		if s.dir == "internal/gate" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			if sel, ok := lit.Type.(*ast.SelectorExpr); ok && sel.Sel.Name == "Permit" && !strings.HasSuffix(s.path, "_test.go") {
				t.Errorf("%s makes a Permit", s.path)
			}
			return true
		})
	}
}

// TestOnlyTheCommandLineMints: what writes without a permit, since there is no token yet, is for a person at a terminal.
func TestOnlyTheCommandLineMints(t *testing.T) {
	used := false
	for _, s := range sources(t) {
		if s.dir == "internal/proxmox" || strings.HasSuffix(s.path, "_test.go") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Minter", "NewMinter", "MinterConfig"}, sel.Sel.Name) {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "proxmox" {
				if used = used || s.dir == "cmd/castellan"; s.dir != "cmd/castellan" {
					t.Errorf("%s uses proxmox.%s", s.path, sel.Sel.Name)
				}
			}
			return true
		})
	}
	if !used {
		t.Error("nobody uses it: the look is wrong")
	}
}

// TestEveryOperationIsListed: what is declared in some file is also served.
func TestEveryOperationIsListed(t *testing.T) {
	n := 0
	for _, s := range sources(t) {
		if !strings.HasPrefix(s.dir, "internal/ops/") || strings.HasSuffix(s.path, "_test.go") || strings.HasSuffix(s.dir, "test") {
			continue
		}
		ast.Inspect(s.file, func(node ast.Node) bool {
			if sel, ok := node.(*ast.SelectorExpr); ok && slices.Contains([]string{"Query", "Change", "Control", "Door"}, sel.Sel.Name) {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "gate" {
					n++
				}
			}
			return true
		})
	}
	if n == 0 || n != len(declared()) {
		t.Errorf("%d operations are declared, %d are listed", n, len(declared()))
	}
}

// TestEveryPackageHasItsPlace: the page on where things are names each package.
func TestEveryPackageHasItsPlace(t *testing.T) {
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for dir := range mayImport {
		if _, err := os.Stat(filepath.Join("../..", dir)); err != nil {
			continue // of a later version
		}
		short := strings.TrimPrefix(dir, "internal/") // beside its neighbours
		if !slices.ContainsFunc([]string{dir, short, filepath.Base(short)}, func(name string) bool { return strings.Contains(string(page), "`"+name+"`") }) {
			t.Errorf("docs/architecture.md does not name %s", dir)
		}
	}
}

func TestFilesAreShort(t *testing.T) {
	for _, s := range sources(t) {
		if s.lines > 800 {
			t.Errorf("%s has %d lines; at most 800", s.path, s.lines)
		}
	}
}

func TestNoGlobalStateAndNoInit(t *testing.T) {
	variables := map[string]map[string]bool{} // folder → names of package-level variables
	all := sources(t)
	for _, s := range all {
		if variables[s.dir] == nil {
			variables[s.dir] = map[string]bool{}
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s has an init", s.path)
			}
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR || strings.HasSuffix(s.path, "_test.go") {
				continue
			}
			for _, spec := range g.Specs {
				for _, n := range spec.(*ast.ValueSpec).Names {
					variables[s.dir][n.Name] = true
				}
			}
		}
		for _, word := range []string{"utils", "common", "helpers", "types", "models", "services", "core", "pkg"} {
			if slices.Contains(strings.Split(s.dir, "/"), word) {
				t.Errorf("%s lies in a folder named %s", s.path, word)
			}
		}
	}
	for _, s := range all {
		for _, change := range changed(s.file, variables[s.dir]) {
			t.Errorf("%s changes %s, which is state of the whole package", s.path, change)
		}
	}
}

// changed lists the package-level variables that a file's functions assign to. The parser has resolved what is local.
func changed(f *ast.File, variables map[string]bool) []string {
	var out []string
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		note := func(e ast.Expr) {
			for {
				switch x := e.(type) {
				case *ast.IndexExpr:
					e = x.X
				case *ast.SelectorExpr:
					e = x.X
				case *ast.ParenExpr:
					e = x.X
				case *ast.StarExpr:
					e = x.X
				case *ast.Ident:
					local := x.Obj != nil && x.Obj.Pos() >= fn.Pos() && x.Obj.Pos() <= fn.End()
					if variables[x.Name] && x.Name != "_" && !local {
						out = append(out, x.Name)
					}
					return
				default:
					return
				}
			}
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.AssignStmt:
				if x.Tok != token.DEFINE {
					for _, e := range x.Lhs {
						note(e)
					}
				}
			case *ast.IncDecStmt:
				note(x.X)
			case *ast.CallExpr:
				if id, ok := x.Fun.(*ast.Ident); ok && slices.Contains([]string{"delete", "clear"}, id.Name) && len(x.Args) > 0 {
					note(x.Args[0])
				}
			}
			return true
		})
	}
	return out
}

// TestGlobalStateIsSeen: the check above can fail.
func TestGlobalStateIsSeen(t *testing.T) {
	const text = `package p
var n, m, k = 0, map[string]int{}, 1
func f(k int) { n = 1; n++; m["a"] = 2; delete(m, "a"); k = 2; { n := 3; n = 4 } ; other = 5 }
`
	f, err := parser.ParseFile(token.NewFileSet(), "p.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(changed(f, map[string]bool{"n": true, "m": true, "k": true, "other": true}), " "); got != "n n m m other" {
		t.Errorf("seen: %s", got)
	}
}
