package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/mcpserver"
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
	b.Run("mcp", func(b *testing.B) {
		s, err := mcpserver.New(mcpserver.Config{Gate: h.gate, Principal: gate.Principal{Agent: "agent"}})
		if err != nil {
			b.Fatal(err)
		}
		in, ask := io.Pipe()
		answers, out := io.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- s.Stdio(context.Background(), in, out) }()
		lines := bufio.NewReaderSize(answers, 1<<16)
		send := func(text string) {
			if _, err := io.WriteString(ask, text+"\n"); err != nil {
				b.Fatal(err)
			}
		}
		next := func() {
			if _, err := lines.ReadSlice('\n'); err != nil {
				b.Fatal(err)
			}
		}
		send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"b","version":"1"}}}`)
		next()
		send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		b.ReportAllocs()
		for b.Loop() {
			send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"call_operation","arguments":{"operation":"` + operation + `","params":{"node":"pve1","vmid":"101"}}}}`)
			next()
		}
		_ = ask.Close()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
}
