package channel

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrNotEnrolled is a guest that castellan has no channel into.
var ErrNotEnrolled = errors.New("find channel: the guest is not enrolled")

// HostKeyError is a server that is not the enrolled guest: nothing was offered to it.
type HostKeyError struct {
	Address string
	Got     string // "ssh-ed25519 SHA256:…"
}

func (e *HostKeyError) Error() string {
	return fmt.Sprintf("what answers at %s shows the host key %s, which is not the pinned one", e.Address, e.Got)
}

// UnreachableError is a guest that answers at none of its addresses.
type UnreachableError struct{ Tried []string } // "10.0.0.5:22: connection refused"

func (e *UnreachableError) Error() string {
	if len(e.Tried) == 0 {
		return "the guest has no address that can be tried"
	}
	return "the guest does not answer: " + strings.Join(e.Tried, "; ")
}

// KeyRefusedError is the right guest, which does not take castellan's key from here.
type KeyRefusedError struct{ Address, From string }

func (e *KeyRefusedError) Error() string {
	return fmt.Sprintf("the guest at %s does not take castellan's key; it was enrolled to take it from %s only", e.Address, e.From)
}

// TooMuchError is a guest that said more than is read. The connection was ended.
type TooMuchError struct{ Most int }

func (e *TooMuchError) Error() string {
	return fmt.Sprintf("the guest answered with more than %d bytes: it was cut off and the connection ended", e.Most)
}

// SlowError is a guest that had not answered when its time was over.
type SlowError struct {
	After time.Duration
	Bytes int // that it had said
}

func (e *SlowError) Error() string {
	return fmt.Sprintf("the guest did not end its answer within %s (%d bytes came); it was ended", e.After.Round(time.Millisecond), e.Bytes)
}

// EndError is a word that ended otherwise than well. What it said is the guest's own, bounded and clean.
type EndError struct {
	Code   int // -1: not told
	Signal string
	Said   string
}

func (e *EndError) Error() string {
	how := "without telling how"
	switch {
	case e.Signal != "":
		how = "by signal " + e.Signal
	case e.Code >= 0:
		how = fmt.Sprintf("with %d", e.Code)
	}
	text := "the word ended " + how + " in the guest"
	if e.Said != "" {
		text += "; it says: " + e.Said
	}
	return text
}

// CutError is a connection that broke while a word was under way. Started says whether the guest had taken the word.
type CutError struct {
	Started bool
	Cause   error
}

func (e *CutError) Error() string {
	if e.Started {
		return fmt.Sprintf("the connection to the guest broke while the word was under way: %v", e.Cause)
	}
	return fmt.Sprintf("the connection to the guest broke: %v", e.Cause)
}

// Unwrap gives the cause.
func (e *CutError) Unwrap() error { return e.Cause }
