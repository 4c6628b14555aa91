package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/lab"
)

// BenchmarkRead is one governed read of a lab in the same process, beside the bare client's.
func BenchmarkRead(b *testing.B) {
	g := newGround(b, lab.Config{})
	a := &app{in: nil, out: io.Discard, err: io.Discard, env: os.LookupEnv, config: g.config}
	h, err := a.house(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	h.start()
	defer h.end(5 * time.Second)
	const operation = "GET /nodes/{node}/qemu/{vmid}/status/current"
	b.Run("bare", func(b *testing.B) {
		req, err := gate.NewRequest("pve", operation, map[string]any{"node": "pve1", "vmid": "101"})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := h.client.Read(context.Background(), "lab", req); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("governed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := h.gate.Do(context.Background(), gate.Call{Operation: "call_operation", Principal: gate.Principal{Agent: "agent"},
				Args: json.RawMessage(`{"operation":"` + operation + `","params":{"node":"pve1","vmid":"101"}}`)}, nil)
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}
