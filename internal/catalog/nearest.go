package catalog

import (
	"slices"
	"strings"
)

// editDistance counts insertions, removals, replacements and swaps of neighbours, in bytes.
func editDistance(a, b string) int {
	if len(a) > 64 {
		a = a[:64]
	}
	if len(b) > 64 {
		b = b[:64]
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// nearest returns the candidate that was most likely meant, or "" when none is near. Case and the difference
// between - and _ count little; a candidate that begins with the word, or the other way round, counts as near.
func nearest(word string, candidates []string) string {
	fold := func(s string) string {
		return strings.NewReplacer("_", "", "-", "", ".", "", " ", "").Replace(strings.ToLower(s))
	}
	w := fold(word)
	best, bestCost := "", 1+max(1, len(w)/3)
	for _, c := range candidates {
		f := fold(c)
		cost := editDistance(w, f)
		if len(w) >= 3 && len(f) >= 3 && (strings.HasPrefix(f, w) || strings.HasPrefix(w, f)) {
			cost = min(cost, 2)
		}
		if cost < bestCost || cost == bestCost && best != "" && len(c) < len(best) {
			best, bestCost = c, cost
		}
	}
	return best
}

// nearPaths lists up to four operations whose templates look like the parts, those with the same method first.
func (t *table) nearPaths(method string, parts []string) []string {
	type scored struct {
		id   string
		cost int
	}
	var best []scored
	for _, op := range t.ops {
		template := strings.Split(strings.Trim(op.Path, "/"), "/")
		if d := len(template) - len(parts); d < -2 || d > 2 {
			continue
		}
		cost := templateDistance(template, parts)
		if !strings.EqualFold(op.Method, method) {
			cost += 2
		}
		best = append(best, scored{op.ID, cost})
	}
	slices.SortStableFunc(best, func(a, b scored) int { return a.cost - b.cost })
	var out []string
	for _, s := range best[:min(4, len(best))] {
		if s.cost > 12 {
			break
		}
		out = append(out, s.id)
	}
	return out
}

// templateDistance is an edit distance over parts: a fixed part against another one costs up to 5, a missing one 4.
func templateDistance(template, parts []string) int {
	if len(parts) > 16 {
		parts = parts[:16]
	}
	row := make([]int, len(parts)+1)
	for j := range row {
		row[j] = 4 * j
	}
	for i, want := range template {
		prev := row[0]
		row[0] = 4 * (i + 1)
		for j, have := range parts {
			cost := 0
			if _, open := placeholder(want); !open && want != have {
				cost = 5
				if d := len(want) - len(have); d > -4 && d < 4 {
					cost = min(5, 1+editDistance(want, have))
				}
			}
			prev, row[j+1] = row[j+1], min(prev+cost, row[j]+4, row[j+1]+4)
		}
	}
	return row[len(parts)]
}
