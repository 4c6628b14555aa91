package self

import (
	"net/url"
	"strings"
	"testing"

	"castellan/internal/gate"
	"castellan/internal/ops/housetest"
	"castellan/internal/policy"
)

// TestDoctorTellsOfTags: tags that were to grant scope and grant none are told, with the line that reserves them beside
// those that are reserved already.
func TestDoctorTellsOfTags(t *testing.T) {
	l := openHouse(t, housetest.Config{Policy: &policy.Settings{Capabilities: gate.Capabilities(), StandIn: "phrase", Tags: []string{"agent-ok", "other-ok"}}})
	l.bench.enabled = []string{"power"}
	for _, c := range []struct{ registered, access, want, fix string }{
		{"", "", "agent-ok, other-ok", "--registered-tags 'agent-ok;other-ok' --user-tag-access 'user-allow=existing'"},
		{"mine;other-ok", "user-allow=list,user-allow-list=Agent-OK;x", "can set them: agent-ok (", "--registered-tags 'Agent-OK;agent-ok;mine;other-ok'\""},
		{"other-ok;agent-ok", "user-allow=free", "where it is typed in other letters", "--user-tag-access 'user-allow=existing'"},
		{"other-ok;agent-ok", "user-allow=existing", "the tags of policy.tags count", ""},
	} {
		if c.registered != "" {
			l.other("PUT", "/cluster/options", url.Values{"registered-tags": {c.registered}, "user-tag-access": {c.access}})
		}
		_, text := l.doctorSays(`{"detail":"full"}`)
		if !strings.Contains(text, c.want) || !strings.Contains(text, c.fix) {
			t.Errorf("with %q and %q, it lacks %q or %q: %.1500s", c.registered, c.access, c.want, c.fix, text)
		}
	}
	plain := open(t, "small", "admin")
	if _, text := plain.doctorSays(`{"detail":"full"}`); strings.Contains(text, "policy.tags") {
		t.Errorf("no tag grants anything, and doctor speaks of them: %s", text)
	}
}

// TestFreshnessNamesTheGrant: what castellan's own user lacks for telling the age of backups comes with the line that gives it.
func TestFreshnessNamesTheGrant(t *testing.T) {
	l := open(t, "small", "limited")
	out, err := l.do("backup_freshness", `{}`)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(out.Answer); !strings.Contains(text, `"complete":false`) || !strings.Contains(text, `"grant":"`) || !strings.Contains(text, "pveum acl modify /") {
		t.Errorf("it lacks the line: %.2000s", text)
	}
	whole := open(t, "small", "admin")
	if out, err = whole.do("backup_freshness", `{}`); err != nil || strings.Contains(string(out.Answer), `"grant"`) {
		t.Errorf("nothing is missing, and a grant is named: %v %.600s", err, text(out))
	}
}
