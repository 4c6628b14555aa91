package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"castellan/internal/gate"
)

func TestCodes(t *testing.T) {
	for want, err := range map[int]error{
		ExitOK: nil, ExitError: errors.New("x"), ExitUsage: Usage{errors.New("x")}, ExitDenied: gate.Fail(gate.ErrDenied, "", "x"), ExitNotFound: gate.Fail(gate.ErrNotFound, "", "x"),
		ExitStale: gate.Fail(gate.ErrStale, "", "x"), ExitDown: gate.Fail(gate.ErrUnavailable, "", "x"), ExitUnknown: gate.Fail(gate.ErrUnknownOutcome, "", "x"),
		ExitApproval: fmt.Errorf("wrapped: %w", Exit(8)),
	} {
		if got := Code(err); got != want {
			t.Errorf("%v has code %d, not %d", err, got, want)
		}
	}
	if got := Code(fmt.Errorf("wrapped: %w", gate.Fail(gate.ErrInvalid, "", "x"))); got != ExitUsage {
		t.Errorf("invalid has code %d", got)
	}
}

func TestSpoken(t *testing.T) {
	names := []string{"show_plan", "list_plans", "apply_plan", "list_guests", "guest_power"}
	for in, want := range map[string]string{
		"show_plan tells how it went.":                     "castellan plans show tells how it went.",
		"It goes on. show_plan with plan=p-1 tells":        "It goes on. castellan plans show p-1 tells",
		"Use list_guests, then castellan call list_guests": "Use castellan call list_guests, then castellan call list_guests",
		"nothing of a_name or my_list_guests":              "nothing of a_name or my_list_guests",
		"":                                                 "",
	} {
		if got := Spoken(in, names); got != want {
			t.Errorf("%q became %q, not %q", in, got, want)
		}
	}
}

func TestReportAlwaysIsJSONWhenAsked(t *testing.T) {
	for _, err := range []error{errors.New("plain \x1b[2J"), Usage{errors.New("use")}, gate.Fail(gate.ErrStale, "again", "old \u009b")} {
		var b bytes.Buffer
		Report(&b, err, true, nil)
		var got struct {
			Error struct{ Kind, Message string }
		}
		if json.Unmarshal(b.Bytes(), &got) != nil || got.Error.Kind == "" || got.Error.Message != err.Error() || strings.Count(b.String(), "\n") != 1 {
			t.Errorf("%v: %q", err, b.String())
		}
	}
}

// FuzzOutput: whatever a value holds, JSON keeps it and neither form steers a terminal.
func FuzzOutput(f *testing.F) {
	for _, s := range []string{"plain", "\x1b[31m", "\u202e", "\u009b", "\U000e0041", "\x00\x7f", "a\nb\tc", "\xff", "é日", "a\u2060b\u00ad", "\ufe0f\u3164\u2800", "\x1b]0;x\x07"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		valid := strings.ToValidUTF8(s, "\ufffd")
		var b, a bytes.Buffer
		if err := PrintJSON(&b, map[string]string{"k": valid}); err != nil {
			t.Fatal(err)
		}
		var back map[string]string
		if err := json.Unmarshal(b.Bytes(), &back); err != nil || back["k"] != valid {
			t.Errorf("%q came back as %q %v", valid, back["k"], err)
		}
		raw, err := json.Marshal(map[string]any{"text": valid, "rows": []any{map[string]any{valid: valid, "n": 1}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := printAnswer(&a, raw); err != nil {
			t.Fatal(err)
		}
		for _, r := range b.String() + a.String() + Safe(s) {
			if r != '\n' && r != '\t' && r != '\ufffd' && !unicode.IsPrint(r) {
				t.Errorf("%q is printed for %q", r, s)
			}
		}
		if Safe(Safe(s)) != Safe(s) {
			t.Errorf("Safe is not idempotent for %q", s)
		}
	})
}

func TestTablesKeepTheOrder(t *testing.T) {
	var b bytes.Buffer
	if err := printAnswer(&b, json.RawMessage(`{"records":[{"tree":"write","at":"now","kind":"read"},{"tree":"read","at":"then","kind":"x","more":[1]}],"shown":2,"tags":["a","b"],"none":null}`)); err != nil {
		t.Fatal(err)
	}
	want := "records:\n  AT    TREE   KIND  MORE\n  now   write  read  \n  then  read   x     1\nshown: 2\ntags: a, b\n"
	if b.String() != want {
		t.Errorf("%q\n%q", b.String(), want)
	}
}

// TestCells: what is nested is still read by people.
func TestCells(t *testing.T) {
	for in, want := range map[string]string{
		`"a b"`: "a b", `3`: "3", `true`: "true", `null`: "", `[]`: "", `["a","b"]`: "a, b", `[1,2]`: "1, 2", `{"a":1,"b":"x"}`: "a 1, b x",
		`[{"figure":"load","value":3},{"figure":"swap","value":"0 B"}]`: "figure load, value 3; figure swap, value 0 B", `{"a":{"b":[1]}}`: "a b 1",
	} {
		if got := scalar(json.RawMessage(in)); got != want {
			t.Errorf("%s: %q, not %q", in, got, want)
		}
	}
}

// TestSwitchWithItsValueApart: "--enabled false" is no yes with a guest called false behind it.
func TestSwitchWithItsValueApart(t *testing.T) {
	o := &gate.Operation{Name: "edit", Input: json.RawMessage(`{"type":"object","required":["id"],"properties":{"id":{"type":"string"},"enabled":{"type":"boolean"},"all_of":{"type":"boolean"}}}`)}
	of := &gate.Operation{Name: "stop", Guest: "guest", Input: json.RawMessage(`{"type":"object","properties":{"guest":{"type":"string"},"force":{"type":"boolean"}}}`)}
	for _, tt := range []struct{ args, want string }{
		{"edit --id j --enabled false", "--enabled=false"},
		{"edit --all-of true --id j", "--all-of=true"},
		{"stop --force false", "--force=false"},
		{"stop 101 --force false", "--force=false"},
		{"stop 101 --force=false", ""},
		{"stop 101 --force", ""},
		{"stop false", ""}, // a guest of that name
		{"edit false", "did you mean --id false?"},
	} {
		ran := false
		c := callCommand(Config{Calls: true, Declared: func() []*gate.Operation { return []*gate.Operation{o, of} }, Open: func(context.Context) (Gate, func(), error) {
			ran = true
			return nil, nil, errors.New("stop here")
		}})
		c.SetArgs(strings.Fields(tt.args))
		c.SilenceErrors, c.SilenceUsage = true, true
		if err := c.Execute(); ran != (tt.want == "") || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: ran %v, %v", tt.args, ran, err)
		}
	}
}

// TestCallOfTheAPIItself: who calls a request of the API by its path is told how, whatever flags stand behind it.
func TestCallOfTheAPIItself(t *testing.T) {
	for name, want := range map[string]string{"POST /nodes/{node}/status": "call_operation", "nosuch": "there is no operation"} {
		c := callCommand(Config{Declared: func() []*gate.Operation { return nil }})
		c.SetArgs([]string{name, "--node", "pve1"})
		c.SilenceErrors, c.SilenceUsage = true, true
		if err := c.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
