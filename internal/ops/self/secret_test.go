package self

import (
	"encoding/json"
	"strings"
	"testing"

	"castellan/internal/gate"
)

// TestPlansShowNoSecret: neither sentence, request, difference, condition nor undo of a plan holds a secret, wherever in a
// value it stands; and the plan can still be carried out.
func TestPlansShowNoSecret(t *testing.T) {
	const secret = "Sup3rs3cret"
	for _, args := range []string{
		`{"operation":"PUT /cluster/options","params":{"http_proxy":"http://bob:` + secret + `@proxy.example.org:3128"}}`,
		`{"operation":"PUT /nodes/pve1/qemu/101/config","params":{"description":"https://bob:` + secret + `@wiki.example.org/x"}}`,
		`{"operation":"POST /nodes/pve1/storage/local/download-url","params":{"url":"https://u:` + secret + `@h.example.org/x.iso","filename":"x.iso","content":"iso"}}`,
		`{"operation":"PUT /nodes/pve1/qemu/101/config","params":{"cipassword":"` + secret + `"}}`,
		`{"operation":"POST /nodes/pve1/qemu/101/remote_migrate","params":{"target-endpoint":"host=1.2.3.4,apitoken=PVEAPIToken=root@pam!x=` + secret + `","target-bridge":"1","target-storage":"1"}}`,
	} {
		l := open(t, "small", "admin")
		out, err := l.gate.Do(t.Context(), gate.Call{Operation: "call_operation", Args: json.RawMessage(args), Principal: l.who, PlanOnly: true}, nil)
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		_, record, err := l.gate.Show(t.Context(), l.who, out.Plan.ID)
		if err != nil {
			t.Fatal(err)
		}
		if all := text(out) + text(record); strings.Contains(all, secret) {
			i := strings.Index(all, secret)
			t.Errorf("%s: …%s", args, all[max(0, i-80):min(len(all), i+20)])
		}
	}
	// Old values of that sort neither.
	l := open(t, "small", "admin")
	proxy := func(host string) string {
		return `{"operation":"PUT /cluster/options","params":{"http_proxy":"http://bob:` + secret + `@` + host + `:3128"}}`
	}
	for i, host := range []string{"a.example.org", "b.example.org"} {
		out, err := l.gate.Do(t.Context(), gate.Call{Operation: "call_operation", Args: json.RawMessage(proxy(host)), Principal: l.who}, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, record, err := l.gate.Show(t.Context(), l.who, out.Plan.ID)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text(out)+text(record), secret) {
			t.Errorf("change %d shows the secret: %s", i, text(out))
		}
		raw, err := json.Marshal(map[string]string{"plan": out.Plan.ID, "sentence": out.Plan.Sentence, "token": out.Plan.Token, "phrase": out.Plan.Phrase})
		if err != nil {
			t.Fatal(err)
		}
		if out, err = l.do("apply_plan", string(raw)); err != nil || out.Status != gate.StatusDone {
			t.Fatalf("change %d: %s %v", i, text(out), err)
		}
	}
}
