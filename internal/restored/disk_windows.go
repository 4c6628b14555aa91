package restored

import (
	"errors"
	"io/fs"
	"math"
	"os"

	"golang.org/x/sys/windows"
)

// own: the folder lies in the account's own profile unless somebody says otherwise, and its access list is theirs to set.
func own(fs.FileInfo) bool { return true }

// free is how many bytes this account may still write to the folder's disk.
func free(root *os.Root) (int64, error) {
	name, err := windows.UTF16PtrFromString(root.Name())
	if err != nil {
		return 0, err
	}
	var left uint64
	if err := windows.GetDiskFreeSpaceEx(name, &left, nil, nil); err != nil {
		return 0, err
	}
	return int64(min(left, math.MaxInt64)), nil
}

func full(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}
