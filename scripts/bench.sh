#!/usr/bin/env bash
# Measures the claims of the README in one run. A missed bar is printed, never a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p bin
CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o bin/empty ./scripts/bench/empty
CGO_ENABLED=0 go build -trimpath -o bin/bench ./scripts/bench
./bin/bench ./bin/castellan ./bin/empty
echo
echo "Ledger (each beside its baseline, same disk, same run):"
go test -run '^$' -bench 'Append|Proof|Verify|RawGroup' -benchtime 1s ./internal/ledger/... ./internal/store/... 2>/dev/null | grep -E '^Benchmark|ratio' || echo "(no figures)"
echo
echo "Approval page of a plan of 200 steps (bar: 30 ms/page):"
go test -run '^$' -bench ApprovalPage -benchtime 1s ./internal/console/ 2>/dev/null | grep -E '^Benchmark' || echo "(no figures)"
echo
echo "MCP over HTTP (calls a second beside a bare server of the SDK whose tool makes the same request, bar: ratio ≥ 0.8; 1,000 idle sessions, bar: 100 MiB):"
go test -run '^$' -bench 'HTTP' -benchtime 10x ./cmd/castellan 2>/dev/null | grep -E '^Benchmark' || echo "(no figures)"
