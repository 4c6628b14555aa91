//go:build linux

package bridge

import (
	"context"

	"castellan/internal/frame"
)

func (b *Bridge) deadMan(ctx context.Context, ask frame.Ask) (string, error) {
	return "", refuse("", "not yet")
}
