package proxmox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// The own scanner takes exactly the objects that encoding/json takes, and finds the same members.
func FuzzEnvelope(f *testing.F) {
	for _, s := range []string{`{}`, ` { "data" : [ 1 , -0.5e+3 , "\u00e9\\\"" , null ] , "total":"7" } `, `{"data":{"a":{"b":[true,false]}}}`, `{"d\u0061ta":1}`,
		`{"data":01}`, `{"data":1,}`, `{"data":"\x"}`, `{"data":[}`, `{"data":1}x`, `{"data":-}`, `{"data":1.}`, `{"data":nul}`, `{"a":1,"a":2}`, "{\"data\":\"\x01\"}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		body := []byte(text)
		siblings, data, err := envelope(body)
		var whole map[string]json.RawMessage
		valid := json.Unmarshal(body, &whole) == nil && len(bytes.TrimSpace(body)) > 0 && bytes.TrimLeft(body, " \n\t\r")[0] == '{'
		if valid != (err == nil) {
			if valid && strings.Count(text, "[")+strings.Count(text, "{") > maxDepth {
				return
			}
			t.Fatalf("%q: valid %v, error %v", text, valid, err)
		}
		if err != nil {
			return
		}
		if string(whole["data"]) != string(data) {
			t.Fatalf("%q: data %q, want %q", text, data, whole["data"])
		}
		delete(whole, "data")
		if len(whole) != len(siblings) {
			t.Fatalf("%q: %d siblings, want %d", text, len(siblings), len(whole))
		}
		for k, v := range whole {
			if string(siblings[k]) != string(v) {
				t.Fatalf("%q: %s is %q, want %q", text, k, siblings[k], v)
			}
		}
	})
}

func TestEnvelopeDepth(t *testing.T) {
	deep := `{"data":` + strings.Repeat("[", 1<<20) + strings.Repeat("]", 1<<20) + `}`
	if _, _, err := envelope([]byte(deep)); err == nil {
		t.Error("a million levels were taken")
	}
}

func BenchmarkEnvelope(b *testing.B) {
	var rows []string
	for i := range 10000 {
		rows = append(rows, fmt.Sprintf(`{"id":"qemu/%d","type":"qemu","vmid":%d,"name":"web-%d","node":"pve1","status":"running","cpu":0.0123,"maxmem":4294967296,"disk":0,"tags":"a;b;c","pool":"x"}`, i, i, i))
	}
	body := []byte(`{"data":[` + strings.Join(rows, ",") + `]}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, _, err := envelope(body); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzReply(f *testing.F) {
	f.Add(200, jsonType, `{"data":[1,{"a":"}"}],"total":"5"}`)
	f.Add(500, "", "500 400 Parameter verification failed.\nvmid: x")
	f.Add(200, "text/html", "<html><title>x</title>")
	f.Add(400, jsonType, `{"errors":{"a":["b"]}}`)
	f.Fuzz(func(t *testing.T, status int, media, body string) {
		r := reply{status: status, header: http.Header{"Content-Type": {media}}, body: []byte(body), reason: body}
		a, e := r.answer(kindPVE, true)
		if (e == nil) != (len(a.Data) > 0) {
			t.Fatalf("%q gave data %q and error %v", body, a.Data, e)
		}
		if e == nil {
			if !json.Valid(a.Data) {
				t.Fatalf("%q gave data that is no JSON: %q", body, a.Data)
			}
			var whole map[string]json.RawMessage
			if media != "text/plain" && json.Unmarshal([]byte(body), &whole) == nil {
				if string(whole["data"]) != string(a.Data) {
					t.Fatalf("%q gave %q, want %q", body, a.Data, whole["data"])
				}
				for k, v := range whole {
					if k != "data" && string(a.Siblings[k]) != string(v) {
						t.Fatalf("%q gave %s %q, want %q", body, k, a.Siblings[k], v)
					}
				}
			}
			return
		}
		if len(e.Message) > 4000 || strings.ContainsAny(e.Message, "\x1b\x00\r") {
			t.Fatalf("%q gave the message %q", body, e.Message)
		}
	})
}
