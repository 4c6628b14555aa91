package estate

import (
	"slices"
	"sync"
)

// After is how a site is once something is done that a caller foresees. What it is given it does not change.
type After struct {
	Guest  func(Guest) Guest                       // as it is listed
	Config map[string]func(Config) Config          // the settings of guests, by id
	Rows   map[string]func(rows []Config) []Config // lists of the whole site, by operation
	Made   func(storage string) bool               // which storages are not there yet: nothing lies on them

	once sync.Once
	inv  *Inventory
}

// After is the same look at the site as it is to be: nothing is read twice.
func (s *Survey) After(a *After) *Survey { return &Survey{s.sight, a} }

func (a *After) inventory(now *Inventory) *Inventory {
	if a == nil || a.Guest == nil {
		return now
	}
	a.once.Do(func() {
		inv := *now
		inv.Guests = slices.Clone(now.Guests)
		for i, g := range inv.Guests {
			inv.Guests[i] = a.Guest(g)
		}
		a.inv = &inv
	})
	return a.inv
}

func (a *After) config(id string, now Settings) Settings {
	if a == nil || a.Config[id] == nil {
		return now
	}
	return Settings{Config: a.Config[id](now.Config)}
}
