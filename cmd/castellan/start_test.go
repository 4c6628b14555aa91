package main

import (
	"context"
	"io"
	"os"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/mcpserver"
)

// BenchmarkStart is what a serve does before it can list its tools, on an existing store.
func BenchmarkStart(b *testing.B) {
	g := newGround(b, lab.Config{})
	a := &app{in: nil, out: io.Discard, err: io.Discard, env: os.LookupEnv, config: g.config}
	b.ReportAllocs()
	for b.Loop() {
		h, err := a.house(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		if _, err := mcpserver.New(mcpserver.Config{Gate: h.gate, Principal: gate.Principal{Agent: "agent"}}); err != nil {
			b.Fatal(err)
		}
		h.start()
		h.end(5 * time.Second)
	}
}
