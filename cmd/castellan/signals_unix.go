//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// stopSignals end the process in good order.
func stopSignals() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} }

// outliveReader makes a write to a pipe that nobody reads any more an error, not the end of the process: what runs is
// to be paused first.
func outliveReader() { signal.Ignore(syscall.SIGPIPE) }
