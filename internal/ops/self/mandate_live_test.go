package self

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/ops/housetest"
	"castellan/internal/ops/pve"
	"castellan/internal/policy"
)

// approver is one person who is signed in.
type approver struct{}

func (approver) Session(context.Context, string) (gate.Principal, error) {
	return gate.Principal{Person: "ann", WayIn: "console", Strength: gate.StrengthSession, Roles: []string{gate.RoleApprover}}, nil
}
func (approver) Assertion(context.Context, string, []byte, json.RawMessage) (gate.Proof, error) {
	return gate.Proof{}, errors.New("no passkey")
}
func (approver) Standing(_ context.Context, who gate.Principal) (gate.Principal, error) {
	return who, nil
}

// TestMandateAndTheNextGuest: at a site, a mandate for guest 103 covers it after it was started, stopped and changed, and not the
// guest that somebody makes under its number, though it is given the same uuid.
func TestMandateAndTheNextGuest(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	h := &live{t: t, House: housetest.Open(t, housetest.Config{
		Gate: func(_ *housetest.House, c *gate.Config) (err error) {
			c.Operations, c.Witness = pve.Operations(), approver{}
			c.Policy, err = policy.New(policy.Config{Highest: gate.RungPerson, Dir: t.TempDir(),
				Settings: policy.Settings{Capabilities: gate.Capabilities(), Rungs: map[string]string{"start": "person", "stop": "person", "shutdown": "person"}}})
			return err
		}})}
	grant := func(byNumber bool) (*gate.Mandate, error) {
		return h.Gate.Grant(t.Context(), gate.Mandate{For: h.Who.Key(), Operations: []string{"guest_power"}, Targets: []string{"lab"}, Objects: []string{"guest/103"},
			Args: map[string][]string{"action": {"*"}}, Count: 20, Until: time.Now().Add(time.Hour), ByNumber: byNumber}, gate.Evidence{Kind: "session", Session: "s"})
	}
	const config = "/nodes/pve1/qemu/103/config"
	var before struct{ Smbios1 string }
	read := func() {
		t.Helper()
		if err := json.Unmarshal(h.other("GET", config, nil), &before); err != nil {
			t.Fatal(err)
		}
	}
	if read(); before.Smbios1 == "" {
		h.other("PUT", config, url.Values{"smbios1": {"uuid=4a35242f-4e1c-411b-8dee-8676ab23dfc9"}})
		read()
	}
	if _, err := grant(false); err != nil {
		t.Fatal(err)
	}
	power := func(action string) *gate.Outcome {
		t.Helper()
		out, err := h.do("guest_power", `{"guest":"103","action":"`+action+`"}`)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if out := power("start"); out.Status != gate.StatusDone {
		t.Fatalf("the guest that was meant: %s", text(out))
	}
	h.other("PUT", config, url.Values{"description": {"changed"}})
	if out := power("stop"); out.Status != gate.StatusDone {
		t.Fatalf("after it was used and changed: %s", text(out))
	}
	time.Sleep(1100 * time.Millisecond) // tasks of the same second are one time
	h.other("DELETE", "/nodes/pve1/qemu/103", nil)
	h.other("POST", "/nodes/pve1/qemu", url.Values{"vmid": {"103"}, "name": {"another"}, "smbios1": {before.Smbios1}})
	if out := power("start"); out.Status != gate.StatusWaiting {
		t.Fatalf("a guest made anew under the number: %s", text(out))
	}
	if m, err := grant(true); err != nil || len(m.Guests) > 0 {
		t.Fatalf("by number: %v %v", m, err)
	}
	if out := power("start"); out.Status != gate.StatusDone {
		t.Errorf("the number alone: %s", text(out))
	}
	h.other("PUT", config, url.Values{"delete": {"smbios1"}})
	if _, err := grant(false); err == nil || !strings.Contains(gate.AsError(err).Message, "nothing that distinguishes it") {
		t.Errorf("a guest without a uuid: %v", err)
	}
}
