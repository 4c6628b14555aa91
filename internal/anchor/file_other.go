//go:build !unix

package anchor

import (
	"errors"
	"os"
)

var errNoFile = errors.New("file anchors need owner and mode of a file as Unix has them; use http or syslog here")

func openAnchor(string, bool) (*os.File, error) { return nil, errNoFile }

func lockFile(*os.File) (func(), error) { return nil, errNoFile }
