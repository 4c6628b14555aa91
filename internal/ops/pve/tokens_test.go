package pve

import (
	"testing"

	"github.com/tiktoken-go/tokenizer"
)

func TestTokens(t *testing.T) {
	enc, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, o := range Operations() {
		ids, _, err := enc.Encode(o.Name + o.Summary + string(o.Input))
		if err != nil {
			t.Fatal(err)
		}
		total += len(ids)
		t.Logf("%4d %s %s", len(ids), o.Name, o.Input)
	}
	t.Logf("total %d", total)
}
