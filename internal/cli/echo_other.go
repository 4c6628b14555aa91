//go:build !linux && !darwin

package cli

// hideEcho does nothing here: reading a secret turns the echo off.
func hideEcho(int) {}
