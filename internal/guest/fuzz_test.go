package guest

import (
	"bytes"
	"io"
	"testing"
	"unicode/utf8"

	"castellan/internal/frame"
)

// said is a stream that has been said already.
type said struct{ io.Reader }

func (said) Write(p []byte) (int, error) { return len(p), nil }
func (said) Close() error                { return nil }

// Whatever a bridge says, the connection ends or the ask does, and what is told is text.
func FuzzTells(f *testing.F) {
	f.Add([]byte(`{"id":"p","started":true}` + "\n" + `{"id":"p","ending":"done","result":{"argv":["a"],"code":0,"gone":true,"out":{"head":"/w==","total":9},"err":{"total":-1},"took":1}}` + "\n"))
	f.Add([]byte(`{"id":"","ending":"refused"}` + "\n"))
	f.Add([]byte("{}\n\n[]\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := newConn(said{bytes.NewReader(b)})
		w, err := c.put(frame.Ask{ID: "p"}, func([]byte) {})
		if err != nil {
			t.Fatal(err)
		}
		c.read()
		if c.ended() == nil {
			t.Fatal("it goes on after its end")
		}
		select {
		case tell := <-w.end:
			if tell.Result != nil {
				res := resultOf(tell.Result, zero)
				if !utf8.ValidString(res.Stdout) || !utf8.ValidString(res.Stderr) || !utf8.ValidString(res.Signal) || res.StdoutBytes < 0 {
					t.Fatalf("%+v", res)
				}
			}
			if tell.File != nil && !utf8.ValidString(fileOf(tell.File).Content) {
				t.Fatal("a file that is no text")
			}
		default:
		}
	})
}
