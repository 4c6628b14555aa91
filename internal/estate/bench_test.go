package estate

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"castellan/internal/lab"
)

func BenchmarkParse10000(b *testing.B) {
	l, err := lab.New(lab.Config{Site: "10000"})
	if err != nil {
		b.Fatal(err)
	}
	status, _, body := l.Do(context.Background(), "GET", "/api2/json/cluster/resources", http.Header{"Authorization": {l.Tokens()["admin"]}}, nil)
	if status != http.StatusOK {
		b.Fatalf("status %d: %.200s", status, body)
	}
	var envelope struct {
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(body, &envelope); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(envelope.Data)))
	for b.Loop() {
		inv, err := parse(envelope.Data)
		if err != nil || len(inv.Guests) < 10_000 {
			b.Fatalf("%d guests, %v", len(inv.Guests), err)
		}
	}
}
