package identity

// Cheap makes password hashes quick for tests.
func (i *Identity) Cheap() {
	i.cost = cost{memory: 64, passes: 1, threads: 1}
	i.dummy = i.cost.dummyHash()
}
