package helper

import (
	"embed"
	"fmt"
	"strings"

	"castellan/internal/patch"
)

//go:embed *.sh
var scripts embed.FS

func script(name string) string {
	b, err := scripts.ReadFile(name)
	if err != nil {
		return ""
	}
	return string(b)
}

// Text is the helper of a family, as it lies in a guest or on a node.
func Text(family patch.Family) (string, error) {
	part := script("family_" + string(family) + ".sh")
	if part == "" {
		return "", fmt.Errorf("write helper: there is none for packages of the family %q", family)
	}
	if family == patch.DNF || family == patch.Zypper {
		part = script("family_rpm.sh") + "\n" + part
	}
	return script("common.sh") + "\n" + part + "\nmain \"$@\"\n", nil
}

// GateText is the forced command.
func GateText() string { return script("gate.sh") }

// Version is that of the helper's text, as it tells it in a guest. One that tells another was put there by another castellan.
func Version() string {
	_, rest, _ := strings.Cut(script("common.sh"), " VERSION=")
	version, _, _ := strings.Cut(rest, "\n")
	return version
}
