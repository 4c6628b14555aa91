package cli

import "golang.org/x/sys/unix"

// hideEcho turns the echo of a terminal off, before a prompt is shown: who answers at once must not see a secret either.
// Whoever calls it restores the terminal.
func hideEcho(fd int) {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return // reading turns it off too
	}
	t.Lflag &^= unix.ECHO
	_ = unix.IoctlSetTermios(fd, unix.TCSETS, t) // as above
}
