package gate

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

type shapeBase struct {
	Cursor string `json:"cursor,omitempty"`
}

type shapeRow struct {
	Name string         `json:"name"`
	At   time.Time      `json:"at"`
	More map[string]any `json:"more,omitempty"`
}

type shapeProbe struct {
	shapeBase
	Guest   string              `json:"guest" jsonschema:"id or unique \"name\""`
	Actions []string            `json:"actions,omitempty" enum:"start,stop"`
	Count   *int                `json:"count,omitempty"`
	Size    uint64              `json:"size,omitzero"`
	Share   float64             `json:"share"`
	Rows    []shapeRow          `json:"rows"`
	Next    *shapeRow           `json:"next,omitempty"`
	Raw     json.RawMessage     `json:"raw,omitempty"`
	Any     any                 `json:"any,omitempty"`
	By      map[string]shapeRow `json:"by,omitempty"`
	Hidden  string              `json:"-"`
	Plain   bool
	inner   int
}

func TestShape(t *testing.T) {
	s, err := shapeOf(reflect.TypeFor[shapeProbe]())
	if err != nil {
		t.Fatal(err)
	}
	row := `{"type":"object","properties":{"name":{"type":"string"},"at":{"type":"string"},"more":{"type":"object","additionalProperties":true}},"required":["name","at"],"additionalProperties":false}`
	want := `{"type":"object","properties":{"cursor":{"type":"string"},"guest":{"type":"string","description":"id or unique \"name\""},` +
		`"actions":{"type":"array","items":{"type":"string","enum":["start","stop"]}},"count":{"type":"integer"},"size":{"type":"integer","minimum":0},` +
		`"share":{"type":"number"},"rows":{"type":"array","items":` + row + `},"next":` + row + `,"raw":{},"any":{},"by":{"type":"object","additionalProperties":` + row + `},` +
		`"Plain":{"type":"boolean"}},"required":["guest","share","rows","Plain"],"additionalProperties":false}`
	if got := string(s.schema("{}")); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := string(s.schema("true")); !strings.Contains(got, `"raw":true,"any":true`) || !json.Valid([]byte(got)) {
		t.Errorf("with true for anything: %s", got)
	}
	_ = shapeProbe{}.inner
}

type shapeLoop struct {
	Below []shapeLoop `json:"below"`
}

func TestNoShape(t *testing.T) {
	for _, c := range []reflect.Type{reflect.TypeFor[shapeLoop](), reflect.TypeFor[struct{ F func() }](), reflect.TypeFor[map[int]string](),
		reflect.TypeFor[struct {
			shapeBase
			Again string `json:"cursor"`
		}](), reflect.TypeFor[chan int]()} {
		if s, err := shapeOf(c); err == nil {
			t.Errorf("%v has the shape %s", c, s.schema("{}"))
		}
	}
}
