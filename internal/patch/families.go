package patch

import (
	"strconv"
	"strings"
)

// familySupported judges the distributions of the families beside apt. Of one that is looked after it says what cannot be done.
func familySupported(s System) (bool, string) {
	major, _, _ := strings.Cut(s.Version, ".")
	n, err := strconv.Atoi(major)
	numbered := err == nil
	switch s.Family {
	case DNF:
		switch s.ID {
		case "fedora":
			if numbered && n >= 40 && n < 100 {
				return true, ""
			}
		case "rhel", "rocky", "almalinux", "ol":
			if numbered && n >= 8 && n <= 10 {
				return true, ""
			}
		case "centos":
			if numbered && n >= 9 && n <= 10 {
				return true, "the repositories of CentOS Stream have no advisories, so mode security has nothing to go by; mode all works"
			}
		}
		return false, "of the family dnf, castellan knows Fedora from 40, and RHEL, Rocky Linux, AlmaLinux, CentOS Stream and Oracle Linux 8 to 10"
	case Zypper:
		if s.ID == "opensuse-leap" && numbered && n >= 15 && n <= 16 {
			return true, ""
		}
		return false, "of the family zypper, castellan knows openSUSE Leap 15 and 16; a rolling release is upgraded by replacing the whole distribution, which it does not do"
	case Pacman:
		if s.ID == "arch" {
			return true, "Arch Linux knows no partial upgrades and has no advisories in its repositories: mode all with everything in it, or nothing; mode security is refused"
		}
		return false, "of the family pacman, castellan knows Arch Linux"
	case APK:
		if s.ID == "alpine" && numbered && n == 3 {
			return true, "the repositories of Alpine Linux have no advisories: mode security is refused, mode all works within the installed branch"
		}
		return false, "of the family apk, castellan knows Alpine Linux 3 on a numbered branch"
	}
	return false, "castellan does not look after distributions of the family " + string(s.Family)
}

// Refuses says why a mode, or some packages of it alone, cannot be had of a system; empty where it can.
func (s System) Refuses(mode string, named bool) string {
	switch {
	case s.Family == Pacman && (mode == "security" || named):
		return "Arch Linux knows no partial upgrades and has no advisories in its repositories: only mode all, with everything in it"
	case s.Family == APK && (mode == "security" || named):
		return "the repositories of Alpine Linux have no advisories, and apk cannot install a part without writing it into its world file: only mode all, with everything in it"
	case s.Family == DNF && s.ID == "centos" && mode == "security":
		return "the repositories of CentOS Stream have no advisories: only mode all"
	}
	return ""
}
