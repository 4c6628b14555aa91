//go:build !unix && !windows

package store

import "errors"

func guardFile(string) error {
	return errors.New("this system has no way to keep the store from others; use a PostgreSQL address")
}
