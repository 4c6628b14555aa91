package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"castellan/internal/gate"
)

// asProgram makes the test binary run as castellan itself, so that tests start, feed and kill the real program.
// endAt names a point of a plan's way, "sent" or "sent:2" for the second time it is passed; the process ends itself
// there as by kill -9.
const (
	asProgram = "CASTELLAN_TEST_AS_PROGRAM"
	endAt     = "CASTELLAN_TEST_END_AT"
	beatEvery = "CASTELLAN_TEST_HEARTBEAT" // how often owners of plans show that they live
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" && os.Getenv(asNode) != "" {
		os.Exit(onNode(m))
	}
	if os.Getenv(asProgram) == "" && (len(os.Args) < 2 || os.Args[1] != "bridge") { // a bridge starts itself without an environment
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals()...)
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.LookupEnv, trace: ender(os.Getenv(endAt)), mayBecome: true}
	if d, err := time.ParseDuration(os.Getenv(beatEvery)); err == nil {
		a.heartbeat = d
	}
	code := a.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func ender(at string) func(gate.Point) {
	if at == "" {
		return nil
	}
	point, times, found := strings.Cut(at, ":")
	want := int64(1)
	if found {
		n, err := strconv.ParseInt(times, 10, 64)
		if err != nil {
			fmt.Fprintln(os.Stderr, "bad "+endAt)
			os.Exit(2)
		}
		want = n
	}
	var passed atomic.Int64
	return func(p gate.Point) {
		if string(p) != point || passed.Add(1) != want {
			return
		}
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Kill()
		}
		if err != nil {
			os.Exit(137)
		}
		select {} // the kill has not arrived yet: nothing more may happen
	}
}
