package helper

import (
	"embed"
	"fmt"

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
