package catalog

import "strings"

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
