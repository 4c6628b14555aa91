package main

import "os"

// stopSignals end the process in good order; Windows delivers only Ctrl-C and Ctrl-Break.
func stopSignals() []os.Signal { return []os.Signal{os.Interrupt} }
