package estate

import (
	"iter"
	"maps"
	"unique"
)

// table keeps something for each key, question by question: one question is often asked of thousands of objects at once.
type table[V any] map[unique.Handle[question]]map[string]V

func (t table[V]) get(k key) V { return t[k.asked][k.object] }

func (t table[V]) put(k key, v V) {
	of := t[k.asked]
	if of == nil {
		of = map[string]V{}
		t[k.asked] = of
	}
	of[k.object] = v
}

func (t table[V]) drop(k key) {
	if delete(t[k.asked], k.object); len(t[k.asked]) == 0 {
		delete(t, k.asked)
	}
}

// all gets what there is for each of many keys.
func (t table[V]) all(keys []key) []V {
	out := make([]V, len(keys))
	var asked unique.Handle[question]
	var of map[string]V
	for i, k := range keys {
		if i == 0 || k.asked != asked {
			asked, of = k.asked, t[k.asked]
		}
		out[i] = of[k.object]
	}
	return out
}

// room makes room for many keys at once.
func (t table[V]) room(keys []key) {
	asked := map[unique.Handle[question]]int{}
	for _, k := range keys {
		asked[k.asked]++
	}
	for q, n := range asked {
		if of := t[q]; len(of) < n {
			t[q] = make(map[string]V, len(of)+n)
			maps.Copy(t[q], of)
		}
	}
}

func (t table[V]) each() iter.Seq2[key, V] {
	return func(yield func(key, V) bool) {
		for asked, of := range t {
			for object, v := range of {
				if !yield(key{asked, object}, v) {
					return
				}
			}
		}
	}
}
