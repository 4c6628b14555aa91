package self

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"castellan/internal/lab"
)

type healthAnswer struct {
	Verdict string
	CouldBe string `json:"could_be"`
	Answer  string
	Reads   int
	Causes  []struct{ Check, Where, What string }
	Unread  []struct {
		Part, Where, Why, Hides string
		Missing                 string `json:"missing_privilege"`
	}
	Findings []struct{ Level, Check, Where, What string }
}

func (l *live) health(operation, args string) healthAnswer {
	l.t.Helper()
	out, err := l.do(operation, args)
	if err != nil {
		l.t.Fatal(err)
	}
	var a healthAnswer
	raw, err := json.Marshal(out.Answer)
	if err == nil {
		err = json.Unmarshal(raw, &a)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return a
}

// TestDiagnosisOfASite: against a simulated site, with a token that may read all, a node off, and a node that hangs.
func TestDiagnosisOfASite(t *testing.T) {
	l := open(t, "small", "auditor")
	for _, c := range [][2]string{{"diagnose_guest", `{"guest":"101"}`}, {"diagnose_guest", `{"guest":"102"}`}, {"diagnose_node", `{"node":"pve1"}`}, {"site_check", `{}`}} {
		a := l.health(c[0], c[1])
		if a.Answer == "" || a.Reads < 10 || a.Reads > 120 {
			t.Errorf("%v: %+v", c, a)
		}
		for _, u := range a.Unread {
			if u.Why == "" || strings.Contains(u.Why, "unknown form") {
				t.Errorf("%v: %+v", c, u)
			}
		}
		t.Logf("%v: %s, could be %s, %d reads: %s; %+v", c, a.Verdict, a.CouldBe, a.Reads, a.Answer, a.Unread)
	}
	if err := l.lab.SetNode("pve3", lab.NodeOff); err != nil {
		t.Fatal(err)
	}
	a := l.health("site_check", `{}`)
	if a.Verdict != "critical" || a.Findings[0].Check != "node_offline" {
		t.Errorf("with a node off: %s, %+v", a.Verdict, a.Findings)
	}
}

// TestDiagnosisHasAnEnd: a node that takes connections and never answers costs its own part, not the answer.
func TestDiagnosisHasAnEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a node that hangs")
	}
	l := open(t, "small", "auditor")
	l.lab.SetFaults([]lab.Fault{{Kind: "slow", Path: "/nodes/pve2/**", Delay: lab.Duration(20 * time.Second)}})
	began := time.Now()
	a := l.health("site_check", `{"checks":["pools","services","tasks","time"]}`)
	if took := time.Since(began); took > 45*time.Second {
		t.Errorf("it took %s", took)
	}
	if !strings.Contains(a.CouldBe+a.Verdict, "critical") || len(a.Unread) == 0 {
		t.Errorf("%+v", a)
	}
}
