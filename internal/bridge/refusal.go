package bridge

import (
	"errors"
	"fmt"

	"castellan/internal/frame"
)

// refusal is an ask that was not begun: nothing on the node was changed.
type refusal struct {
	reason, hint string
}

func (r *refusal) Error() string { return r.reason }

func refuse(hint, format string, args ...any) error {
	return &refusal{reason: fmt.Sprintf(format, args...), hint: hint}
}

// ending is the last Tell of an ask that came to err.
func ending(id string, err error) frame.Tell {
	var r *refusal
	if errors.As(err, &r) {
		return frame.Tell{ID: id, Ending: frame.Refused, Reason: r.reason, Hint: r.hint}
	}
	return frame.Tell{ID: id, Ending: frame.Failed, Reason: err.Error()}
}
