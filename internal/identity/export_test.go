package identity

import "net/http"

// Cheap makes password hashes quick for tests.
func (i *Identity) Cheap() {
	i.cost = cost{memory: 64, passes: 1, threads: 1}
	i.dummy = i.cost.dummyHash()
}

// Through lets tests reach an outside provider of any name; all other checks stay.
func (i *Identity) Through(t http.RoundTripper) { i.outside.Transport = &bounded{t} }

// What the fuzz tests and tables reach.
var (
	AllowedAddress = allowedAddress
	LeadsToRoot    = leadsToRoot
)
