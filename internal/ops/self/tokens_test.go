package self

import (
	"testing"

	"github.com/tiktoken-go/tokenizer"

	"castellan/internal/gate"
	"castellan/internal/ops/pve"
)

// TestTokens holds the toolsets to what they may cost a model to read.
func TestTokens(t *testing.T) {
	enc, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	own := Operations(Config{})
	count := map[string]int{}
	for _, o := range append(own, pve.Operations()...) {
		if len(o.Input) == 0 {
			t.Fatalf("%s has no input schema", o.Name)
		}
		ids, _, err := enc.Encode(o.Name + "\n" + o.Summary + "\n" + string(o.Input))
		if err != nil {
			t.Fatal(err)
		}
		count[o.Toolset] += len(ids)
		t.Logf("%4d %-8s %s", len(ids), o.Toolset, o.Name)
	}
	front, standard := count["front"], count["front"]+count["standard"]
	t.Logf("front %d, standard %d", front, standard)
	if front > 1200 || standard > 3000 {
		t.Errorf("front has %d of 1200 tokens, standard %d of 3000", front, standard)
	}
}

// TestDeclarations holds what every operation must say of itself.
func TestDeclarations(t *testing.T) {
	own := Operations(Config{})
	for _, o := range append(own, pve.Operations()...) {
		if o.Summary == "" || len(o.Summary) > 120 || o.Toolset != "front" && o.Toolset != "standard" && o.Toolset != "full" {
			t.Errorf("%s: summary %q, toolset %q", o.Name, o.Summary, o.Toolset)
		}
		if o.Writes() && (o.Undo == "" || o.Effect == gate.EffectRead) {
			t.Errorf("%s writes, but says effect %q and undo %q", o.Name, o.Effect, o.Undo)
		}
		if !o.Writes() && o.Name != "apply_plan" && o.Name != "withdraw_plan" && o.Name != "update_settings" && o.Effect != gate.EffectRead {
			t.Errorf("%s does not write, but has effect %q", o.Name, o.Effect)
		}
	}
}
