package self

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tiktoken-go/tokenizer"
)

// TestRoundsOfALargeSite holds the looks at a site of 10,000 guests to a number of requests and to an answer that a model
// can take. How long they take is told and not judged.
func TestRoundsOfALargeSite(t *testing.T) {
	if testing.Short() {
		t.Skip("a site of 10,000 guests")
	}
	l := open(t, "10000", "auditor")
	enc, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		op, args string
		requests int
	}{
		{"diagnose_guest", `{"guest":"103"}`, 45}, {"diagnose_guest", `{"guest":"101"}`, 45}, {"diagnose_node", `{"node":"node001"}`, 25}, {"site_check", `{}`, 1105},
		{"site_check", `{"checks":["pools","storages","ha"]}`, 260}, {"site_check", `{"node":"node002"}`, 430},
	} {
		l.lab.ResetRequests()
		began := time.Now()
		out, err := l.do(c.op, c.args)
		if err != nil {
			t.Errorf("%s %s: %v", c.op, c.args, err)
			continue
		}
		took := time.Since(began)
		ids, _, err := enc.Encode(string(out.Answer))
		if err != nil {
			t.Fatal(err)
		}
		kinds := map[string]int{}
		for _, r := range l.lab.Requests() {
			kinds[kindOf(r.Path)]++
		}
		n := len(l.lab.Requests())
		var a healthAnswer
		if err := json.Unmarshal(out.Answer, &a); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s %s: %d requests, %d reads told, %d tokens, %d bytes, %s; %s; %v; %+v", c.op, c.args, n, a.Reads, len(ids), len(out.Answer), took, a.Answer, kinds, a.Unread)
		if n > c.requests || len(ids) > 20_000 {
			t.Errorf("%s %s: %d requests (at most %d), %d tokens (at most 20,000)", c.op, c.args, n, c.requests, len(ids))
		}
	}
}

// kindOf is a path without the names in it.
func kindOf(path string) string {
	words := strings.Split(strings.Trim(path, "/"), "/")
	for i, w := range words {
		if i > 0 && (words[i-1] == "nodes" || words[i-1] == "qemu" || words[i-1] == "lxc" || words[i-1] == "storage") && w != "" {
			words[i] = "*"
		}
	}
	return strings.Join(words, "/")
}
