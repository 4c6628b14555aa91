//go:build linux

package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"castellan/internal/frame"
)

// FuzzAsk: whatever comes in on the line, nothing runs that the settings do not allow, and every ask has one end.
func FuzzAsk(f *testing.F) {
	for _, s := range []string{
		`{"v":1,"id":"a","verb":"hello"}`, `{"v":2,"id":"a","verb":"exec"}`, `{"v":1,"id":"../a","verb":"look"}`, `{"v":1,"id":"a","verb":"kill"}`, `{"v":1,"id":"a","verb":"sh"}`, `[]`, `{}`, ``, `{"id":`, "\x00", `{"v":1,"id":"a","verb":"hello","x":1}`,
		`{"v":1,"id":"a","verb":"exec","place":{"site":"S","node":"pve1","where":"lxc","vmid":101,"root":"local:101/vm-101-disk-0.raw"},"run":{"lane":"script","script":"touch /srv/ran","interpreter":"sh","limit":1000000000,"max_output":10}}`,
		`{"v":1,"id":"a","verb":"exec","place":{"site":"S","node":"pve1","where":"host"},"run":{"lane":"script","root":true,"secret":"x","script":"touch /srv/ran","interpreter":"sh","limit":1000000000,"max_output":10}}`,
		`{"v":1,"id":"a","verb":"exec","place":{"site":"S","node":"pve1","where":"lxc","vmid":"101 -- sh"},"run":{"lane":"command","argv":["sh"],"limit":-1}}`,
		`{"v":1,"id":"a","verb":"read","place":{"site":"S","node":"../../pve1","where":"lxc","vmid":101,"mac":"x"},"file":{"path":"/etc/shadow"}}`,
		`{"v":1,"id":"a","verb":"manage","place":{"site":"S","node":"pve1","where":"host"},"word":{"name":"maintenance","args":{"mode":"enable"}}}`,
	} {
		f.Add([]byte(s))
	}
	dir, err := filepath.EvalSymlinks(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	write := func(name, text string) {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			f.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o755); err != nil {
			f.Fatal(err)
		}
	}
	write("pve/pve-root-ca.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	write("pve/nodes/pve1/lxc/101.conf", "rootfs: local:101/vm-101-disk-0.raw\n")
	ran := filepath.Join(dir, "ran")
	write("bin/any", "#!/bin/sh\necho ran >> "+ran+"\n")
	s := Settings{Guests: []string{"101"}, Node: "pve1", State: filepath.Join(dir, "state"), Log: filepath.Join(dir, "log"), path: "bridge.toml",
		Paths: Paths{PVE: filepath.Join(dir, "pve"), LXCInfo: filepath.Join(dir, "bin/any"), LXCAttach: filepath.Join(dir, "bin/any"), HAManager: filepath.Join(dir, "bin/any")}}
	if err := s.complete(); err != nil {
		f.Fatal(err)
	}
	b, err := New(Config{Settings: s, Build: "test", Program: []string{filepath.Join(dir, "bin/any")}})
	if err != nil {
		f.Fatal(err)
	}
	site, _, err := b.self()
	if err != nil {
		f.Fatal(err)
	}
	b.set.Paths.LXCInfo = "/bin/false"
	f.Fuzz(func(t *testing.T, line []byte) {
		line = bytes.ReplaceAll(line, []byte(`"site":"S"`), []byte(`"site":"`+site+`"`))
		var out bytes.Buffer
		_ = b.Serve(context.Background(), bytes.NewReader(append(line, '\n')), &out)
		if _, err := os.Stat(ran); err == nil {
			t.Fatalf("it ran something: %q", line)
		}
		asked := strings.Count(string(line), "\n") + 1
		ends := 0
		for r := range bytes.Lines(out.Bytes()) {
			var tell frame.Tell
			if err := json.Unmarshal(r, &tell); err != nil {
				t.Fatalf("answered %q", r)
			}
			if tell.Ending != "" {
				ends++
			}
			if tell.Ending == frame.Done && tell.Hello == nil {
				t.Fatalf("done: %q to %q", r, line)
			}
		}
		if ends > asked {
			t.Fatalf("%d ends of %d lines", ends, asked)
		}
	})
}
