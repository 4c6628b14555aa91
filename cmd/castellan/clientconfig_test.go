package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestClientSettings: castellan's entry is put in, all else stays as it is and where it is; what is not understood is left alone.
func TestClientSettings(t *testing.T) {
	entry := commandEntry{"", "/usr/bin/castellan", []string{"serve"}}
	for _, tt := range []struct {
		name, old string
		replace   bool
		want      string // "" = stays as it is; else a part of the result
		fault     string
	}{
		{"none", "", false, `"castellan"`, ""},
		{"empty", "  {}\n", false, `"castellan"`, ""},
		{"others", `{"b":1,"servers":{"x":{"a":[1,2.50,1e99]}},"a":"é\u0041"}`, false, `1e99`, ""},
		{"there", `{"servers":{"castellan":{"args":["serve"],"command":"/usr/bin/castellan"}}}`, false, "", ""},
		{"another", `{"servers":{"castellan":{"command":"rm"}}}`, false, "", "another entry"},
		{"replaced", `{"servers":{"castellan":{"command":"rm"},"z":1}}`, true, `"/usr/bin/castellan"`, ""},
		{"comment", "{\n// mine\n\"servers\": {}}", false, "", "JSON"},
		{"trailing comma", `{"servers": {},}`, false, "", "JSON"},
		{"twice", `{"servers": {}, "servers": {}}`, false, "", "twice"},
		{"list", `[]`, false, "", "object"},
		{"cut", `{"servers": {`, false, "", "JSON"},
		{"more", `{} {}`, false, "", "follows"},
		{"other type", `{"servers": []}`, false, "", "servers"},
	} {
		got, err := withEntry([]byte(tt.old), "servers", entry, tt.replace)
		switch {
		case tt.fault != "":
			if err == nil || !strings.Contains(err.Error(), tt.fault) || got != nil {
				t.Errorf("%s: %v %s", tt.name, err, got)
			}
		case err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.want == "":
			if got != nil {
				t.Errorf("%s: %s", tt.name, got)
			}
		default:
			if !json.Valid(got) || !strings.Contains(string(got), tt.want) || strings.Contains(string(got), "rm") {
				t.Errorf("%s: %s", tt.name, got)
			}
			if again, err := withEntry(got, "servers", entry, false); err != nil || again != nil {
				t.Errorf("%s, again: %v %s", tt.name, err, again)
			}
		}
	}
}

// TestClientsAreComplete: each can be told of both ways, and what is printed is what is written.
func TestClientsAreComplete(t *testing.T) {
	home := t.TempDir()
	for _, s := range []mcpServer{{command: "/a b/castellan", args: []string{"serve", "--config", "/x y"}}, {url: "https://castellan.lan:8443/mcp"}} {
		for _, c := range clients() {
			text, err := c.text(s)
			if err != nil || !strings.Contains(text, "castellan") || s.url != "" && !strings.Contains(text, s.url) {
				t.Errorf("%s: %v %s", c.name, err, text)
			}
			if c.file == nil {
				if _, _, err := c.write(home, s, true); !errors.Is(err, errPrintOnly) {
					t.Errorf("%s: %v", c.name, err)
				}
				continue
			}
			path, changed, err := c.write(home, s, true)
			b, rerr := os.ReadFile(path)
			if err != nil || rerr != nil || !changed || !sameJSON(b, []byte(text)) {
				t.Errorf("%s: %v %v\n%s\n%s", c.name, err, rerr, b, text)
			}
			if _, changed, err := c.write(home, s, false); err != nil || changed {
				t.Errorf("%s, again: %v %t", c.name, err, changed)
			}
		}
	}
	real := filepath.Join(home, "elsewhere.json")
	if err := os.WriteFile(real, []byte("{}"), 0o640); err != nil {
		t.Fatal(err)
	}
	cursor := clients()[2].file(home)
	if err := os.Remove(cursor); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, cursor); err != nil {
		t.Skip("no links here")
	}
	if _, _, err := clients()[2].write(home, mcpServer{url: "https://x/mcp"}, false); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(cursor); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Error("a link to the settings was replaced by a file")
	}
	if info, err := os.Stat(real); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v", info.Mode())
	}
}
