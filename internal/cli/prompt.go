package cli

import (
	"bufio"
	"context"
)

// ReadLine reads one line that a person types, its newline included. It returns when ctx
// ends too, with its cause: a read from a terminal cannot be called back, so it is left behind and the process ends.
func ReadLine(ctx context.Context, r *bufio.Reader) (string, error) {
	return Interruptible(ctx, func() (string, error) { return r.ReadString('\n') })
}

// Interruptible waits for read, or for the end of ctx.
func Interruptible[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	got := make(chan answer, 1)
	go func() {
		v, err := read()
		got <- answer{v, err}
	}()
	select {
	case a := <-got:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
