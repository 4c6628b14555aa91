package patch

import (
	"strings"
	"testing"
)

// Distributions are looked after or refused by name; what is not known is never guessed.
func TestFamilies(t *testing.T) {
	for _, c := range []struct {
		columns string
		good    bool
		why     string
	}{
		{"fedora 42 - dnf Fedora", true, ""},
		{"fedora 39 - dnf Fedora", false, "Fedora from 40"},
		{"rocky 9.4 - dnf Rocky", true, ""},
		{"almalinux 10.0 - dnf Alma", true, ""},
		{"rhel 7.9 - dnf RHEL", false, "8 to 10"},
		{"centos 9 - dnf CentOS", true, "no advisories"},
		{"centos 8 - dnf CentOS", false, "8 to 10"},
		{"amzn 2023 - dnf Amazon", false, "castellan knows"},
		{"opensuse-leap 15.6 - zypper Leap", true, ""},
		{"opensuse-tumbleweed 20260101 - zypper Tumbleweed", false, "rolling"},
		{"sles 15.6 - zypper SLES", false, "castellan knows"},
		{"arch - - pacman Arch", true, "no partial upgrades"},
		{"manjaro - - pacman Manjaro", false, "Arch Linux"},
		{"alpine 3.22.1 - apk Alpine", true, "no advisories"},
		{"alpine edge - apk Alpine", false, "numbered"},
		{"gentoo 2.17 - - Gentoo", false, "none that castellan knows"},
		{"void - - xbps Void", false, "none that castellan knows"},
		{"debian 12 - dnf Debian", false, "castellan knows"},
		{"fedora 42 - apt Fedora", false, "castellan knows"},
	} {
		s, err := ParseSystem(strings.Fields(c.columns))
		if err != nil || s.Supported != c.good || !strings.Contains(s.Why, c.why) || !c.good && s.Why == "" {
			t.Errorf("%s: %+v %v", c.columns, s, err)
		}
	}
}

func TestRefuses(t *testing.T) {
	for _, c := range []struct {
		system System
		mode   string
		named  bool
		can    bool
	}{
		{System{Family: Pacman, ID: "arch"}, "all", false, true}, {System{Family: Pacman, ID: "arch"}, "all", true, false}, {System{Family: Pacman, ID: "arch"}, "security", false, false},
		{System{Family: APK, ID: "alpine"}, "all", false, true}, {System{Family: APK, ID: "alpine"}, "security", false, false},
		{System{Family: DNF, ID: "centos"}, "security", false, false}, {System{Family: DNF, ID: "fedora"}, "security", true, true}, {System{Family: APT, ID: "debian"}, "security", true, true},
	} {
		if why := c.system.Refuses(c.mode, c.named); (why == "") != c.can {
			t.Errorf("%+v: %q", c, why)
		}
	}
}
