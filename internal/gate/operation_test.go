package gate

import (
	"context"
	"strings"
	"testing"
)

type probeIn struct {
	Guest  string         `json:"guest" jsonschema:"id or unique name"`
	Action string         `json:"action,omitempty" enum:"start,stop,reboot"`
	Limit  int            `json:"limit,omitempty"`
	Set    map[string]any `json:"set,omitempty"`
	Fields []string       `json:"fields,omitempty"`
	Force  bool           `json:"force,omitempty"`
}

type probeOut struct {
	OK bool `json:"ok"`
}

func TestArguments(t *testing.T) {
	o := Query(Declaration{Name: "probe", Summary: "probe"}, func(context.Context, View, probeIn) (probeOut, error) { return probeOut{}, nil })
	if o.fault != nil {
		t.Fatal(o.fault)
	}
	for _, c := range []struct {
		name, in, want string
		param, nearest string
	}{
		{"number as text", `{"guest":101,"limit":"5"}`, `{"guest":"101","limit":5}`, "", ""},
		{"object as text", `{"guest":"a","set":"{\"cores\":4}"}`, `{"guest":"a","set":{"cores":4}}`, "", ""},
		{"one for a list", `{"guest":"a","fields":"name"}`, `{"fields":["name"],"guest":"a"}`, "", ""},
		{"bool as text", `{"guest":"a","force":"true"}`, `{"force":true,"guest":"a"}`, "", ""},
		{"null is absence", `{"guest":"a","action":null}`, `{"guest":"a"}`, "", ""},
		{"unknown name", `{"guset":"a","guest":"b"}`, "", "guset", "guest"},
		{"enum", `{"guest":"a","action":"strt"}`, "", "action", "start"},
		{"missing", `{}`, "", "guest", ""},
		{"twice", `{"guest":"a","guest":"b"}`, "", "", ""},
		{"trailing", `{"guest":"a"} {}`, "", "", ""},
		{"leading zero", `{"guest":"a","limit":"007"}`, "", "limit", ""},
		{"full width", `{"guest":"a","limit":"５"}`, "", "limit", ""},
		{"newline", "{\"guest\":\"a\",\"limit\":\"5\\n\"}", "", "limit", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, problems := o.arguments([]byte(c.in))
			if c.want != "" {
				if len(problems) > 0 || string(got) != c.want {
					t.Fatalf("got %s, problems %v; want %s", got, problems, c.want)
				}
				return
			}
			if len(problems) == 0 {
				t.Fatalf("taken as %s", got)
			}
			if problems[0].Param != c.param || problems[0].Nearest != c.nearest {
				t.Fatalf("problem %+v, want param %q nearest %q", problems[0], c.param, c.nearest)
			}
		})
	}
}

// TestWhereToPutIt: who puts what every change takes beside its arguments among them is told where it goes.
func TestWhereToPutIt(t *testing.T) {
	o := Query(Declaration{Name: "probe", Summary: "probe"}, func(context.Context, View, probeIn) (probeOut, error) { return probeOut{}, nil })
	_, problems := o.arguments([]byte(`{"guest":"a","plan_only":true}`))
	if e := problemError("probe", problems); !strings.Contains(e.Message, "plan_only") || !strings.Contains(e.Message, "beside params") || strings.Contains(e.Message, "valid:") {
		t.Error(e)
	}
}
