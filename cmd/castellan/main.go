// Command castellan administers Proxmox through plans: see docs/ and `castellan --help`.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals()...)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the whole program; tests call it in-process.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{in: stdin, out: stdout, err: stderr, env: os.LookupEnv, mayBecome: true}
	return a.run(ctx, args)
}
