package reach

import (
	"encoding/json"
	"strconv"
	"sync"

	"castellan/internal/estate"
)

// siteReaders read requests about access, nodes, networks, firewalls and the cluster.
func siteReaders() []reader {
	return []reader{readAccess, readFirewall, readNetwork, readNode, readHA, readCluster}
}

// siteRules walk them.
func siteRules() (out []rule) {
	for _, list := range [][]rule{accessRules(), firewallRules(), networkRules(), sdnRules(), nodeRules(), haRules(), clusterRules()} {
		out = append(out, list...)
	}
	return out
}

// number reads a whole number; what is none is 0.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// rowsIn reads a nested list of objects.
func rowsIn(text string) (out []estate.Config) {
	var raw []json.RawMessage
	if json.Unmarshal([]byte(text), &raw) != nil {
		return nil
	}
	for _, r := range raw {
		if c, err := estate.ParseConfig(r); err == nil {
			out = append(out, c)
		}
	}
	return out
}

// each runs f for each of n things, a few at a time.
func each(n int, f func(i int)) {
	const most = 8
	var group sync.WaitGroup
	slots := make(chan struct{}, most)
	for i := range n {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	group.Wait()
}

// unquoted reads a JSON text.
func unquoted(text string) string {
	var s string
	if json.Unmarshal([]byte(text), &s) != nil {
		return text
	}
	return s
}

// textsIn reads a nested list of texts.
func textsIn(text string) (out []string) {
	if json.Unmarshal([]byte(text), &out) != nil && text != "" {
		return []string{text}
	}
	return out
}
