package facts

import "testing"

func TestEveryProductDecodes(t *testing.T) {
	want := map[Product]int{PVE: 680, PBS: 367, PMG: 425, PDM: 327}
	f := Open()
	for _, p := range Products() {
		api, err := f.API(p)
		if err != nil {
			t.Fatal(err)
		}
		if len(api.Operations) != want[p] {
			t.Errorf("%s: %d operations, want %d", p, len(api.Operations), want[p])
		}
		tasks := 0
		for _, o := range api.Operations {
			if o.Task != "" {
				tasks++
			}
			for n, s := range o.Params {
				if s == nil || s.Type == "" && s.Alias == "" && len(s.OneOf) == 0 {
					t.Errorf("%s %s %s: parameter %s has no type", p, o.Method, o.Path, n)
				}
			}
		}
		if tasks == 0 {
			t.Errorf("%s: no operation starts a task", p)
		}
	}
}
