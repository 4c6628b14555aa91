package patch

// familySupported judges the distributions of the families beside apt.
func familySupported(s System) (bool, string) {
	return false, "castellan does not look after distributions of the family " + string(s.Family)
}
