package main

import "os"

// stopSignals end the process in good order; Windows delivers only Ctrl-C and Ctrl-Break.
func stopSignals() []os.Signal { return []os.Signal{os.Interrupt} }

// outliveReader has nothing to do here: there is no signal for a closed pipe.
func outliveReader() {}
