# castellan: build, try, test, measure. Nothing here needs more than Go, git and make.
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
GO      ?= go
LDFLAGS := -s -w -X main.version=$(VERSION)
export CGO_ENABLED := 0

.PHONY: build install demo test bench generate

build:
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/castellan ./cmd/castellan

# Installs into $GOBIN, else $(go env GOPATH)/bin.
install:
	$(GO) install -trimpath -ldflags '$(LDFLAGS)' ./cmd/castellan

demo: build
	@./bin/castellan demo

test:
	@bash scripts/test.sh

bench: build
	@bash scripts/bench.sh

# Writes the embedded API facts anew from the folder CASTELLAN_SCHEMA.
generate:
	$(GO) generate ./internal/catalog/facts
