//go:build unix

package main

import (
	"os"
	"syscall"
)

// stopSignals end the process in good order.
func stopSignals() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} }
