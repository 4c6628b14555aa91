package gate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// longestSentence bounds a plan's sentence, in bytes. Up to it every step is said in full.
const longestSentence = 2400

// sentence is the plan in one line, made of the sentences of its steps. A plan that is too long for one line tells what
// needs the highest approval first, so that nothing worse can hide behind what is shown; the rest is counted by
// operation, with a hash of its sentences.
func sentence(p *Plan) string {
	var parts []string
	for _, s := range p.Steps {
		parts = append(parts, s.Sentence)
	}
	if whole := strings.Join(parts, "; then "); len(whole) <= longestSentence {
		return whole
	}
	order := make([]int, len(p.Steps))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return gravity(p.Steps[b]) - gravity(p.Steps[a]) })
	var b strings.Builder
	fmt.Fprintf(&b, "%d steps, the gravest first: ", len(parts))
	shown := 0
	for _, i := range order {
		line := fmt.Sprintf("(%d) %s; ", i+1, parts[i])
		if shown > 0 && b.Len()+len(line) > longestSentence-300 {
			break
		}
		b.WriteString(line)
		shown++
	}
	counts, names, sum := map[string]int{}, []string{}, sha256.New()
	for _, i := range order[shown:] {
		name := p.Steps[i].API.Operation
		if counts[name]++; counts[name] == 1 {
			names = append(names, name)
		}
		sum.Write([]byte(parts[i] + "\n"))
	}
	if shown == len(parts) {
		return strings.TrimSuffix(b.String(), "; ")
	}
	for i, n := range names[:min(len(names), 6)] {
		names[i] = fmt.Sprintf("%d of %s", counts[n], n)
	}
	more := strings.Join(names[:min(len(names), 6)], ", ")
	if len(names) > 6 {
		more += ", and others"
	}
	return fmt.Sprintf("%sand %d more that need no more approval than these: %s (sha256 %s)", b.String(), len(parts)-shown, more, hex.EncodeToString(sum.Sum(nil))[:16])
}

// gravity orders steps by what the table asks for them, then by their effect.
func gravity(s Step) int {
	rung := RungNone
	for _, k := range s.Judgement.Kinds {
		rung = max(rung, RowOf(k).Rung)
	}
	if len(s.Judgement.Kinds) == 0 {
		rung = RowOf(KindUnknown).Rung
	}
	return int(rung)*len(effectOrder) + effectRank(s.Judgement.Effect)
}
