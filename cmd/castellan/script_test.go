package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"castellan/internal/lab"
)

// TestScripts runs testdata/script against the real program and a simulated site of each script's own.
//
//	castellan ARG…            must end with 0
//	fails CODE ARG…           must end with that code
//	take VAR FILE KEY…        sets a variable from a JSON file
//	faults FILE               scripts failures of the site
//	written COUNT PATH-PART   counts the writes that the site has seen
func TestScripts(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the scripts use the tools of Unix")
	}
	var sites sync.Map // work folder → its *lab.Lab; scripts run at the same time
	of := func(ts *testscript.TestScript) *lab.Lab {
		l, _ := sites.Load(ts.Getenv("WORK"))
		return l.(*lab.Lab)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			s := newSite(env.T().(testing.TB), lab.Config{}, "capabilities = [\"config\", \"guard\", \"power\", \"rollback\", \"settings\", \"snapshot\"] # as little as can be\nstand_in = \"phrase\"")
			sites.Store(env.WorkDir, s.lab)
			env.Setenv("CASTELLAN_CONFIG", s.config)
			env.Setenv("SITE", s.dir)
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("FINGERPRINT", s.lab.Fingerprint())
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"castellan": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg {
					ts.Fatalf("use: fails CODE ARG…")
				}
				runScripted(ts, 0, args)
			},
			"fails": func(ts *testscript.TestScript, _ bool, args []string) {
				code, err := strconv.Atoi(args[0])
				ts.Check(err)
				runScripted(ts, code, args[1:])
			},
			"take": func(ts *testscript.TestScript, _ bool, args []string) {
				var v any
				ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[1])), &v))
				for _, k := range args[2:] {
					if l, ok := v.([]any); ok {
						i, err := strconv.Atoi(k)
						ts.Check(err)
						v = l[i]
						continue
					}
					m, ok := v.(map[string]any)
					if !ok || m[k] == nil {
						ts.Fatalf("there is no %s in %s", k, ts.ReadFile(args[1]))
					}
					v = m[k]
				}
				ts.Setenv(args[0], fmt.Sprint(v))
			},
			"faults": func(ts *testscript.TestScript, _ bool, args []string) {
				var faults []lab.Fault
				ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &faults))
				of(ts).SetFaults(faults)
			},
			"written": func(ts *testscript.TestScript, _ bool, args []string) {
				n := 0
				for _, r := range of(ts).Requests() {
					if r.Method != "GET" && strings.Contains(r.Path, args[1]) {
						n++
					}
				}
				if fmt.Sprint(n) != args[0] {
					ts.Fatalf("%d writes to %s", n, args[1])
				}
			},
		},
	})
}

func runScripted(ts *testscript.TestScript, want int, args []string) {
	self, err := os.Executable()
	ts.Check(err)
	cmd := exec.Command(self, args...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = []string{asProgram + "=1"}
	for _, k := range []string{"HOME", "PATH", "CASTELLAN_CONFIG", "CASTELLAN_LOG", "CASTELLAN_AGENT", "CASTELLAN_POLICY_READ_ONLY", "CASTELLAN_POLICY_READONLY", "CASTELLAN_STORE_URL", "CASTELLAN_LANES_SCRIPTS_GUESTS", "CASTELLAN_LANES_PROBES_OFF"} {
		if v := ts.Getenv(k); v != "" {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
	}
	cmd.Stdout, cmd.Stderr = ts.Stdout(), ts.Stderr()
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		ts.Fatalf("run: %v", err)
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		ts.Fatalf("exit code %d, not %d", got, want)
	}
}
