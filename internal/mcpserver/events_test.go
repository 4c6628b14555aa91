package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"pgregory.net/rapid"
)

func read(e *events, session, stream string, after int) (got []string, err error) {
	for data, err := range e.After(context.Background(), session, stream, after) {
		if err != nil {
			return got, err
		}
		got = append(got, string(data))
	}
	return got, nil
}

func TestEventsAreReadOnWhereTheyBroke(t *testing.T) {
	ctx := context.Background()
	e := newEvents(10_000, 20_000)
	for i := range 5 {
		if err := e.Append(ctx, "s", "a", fmt.Appendf(nil, "a%d", i)); err != nil {
			t.Fatal(err)
		}
		if err := e.Append(ctx, "s", "b", fmt.Appendf(nil, "b%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := read(e, "s", "a", 2); err != nil || !slices.Equal(got, []string{"a3", "a4"}) {
		t.Errorf("%v %v", got, err)
	}
	if got, err := read(e, "s", "b", 4); err != nil || len(got) != 0 {
		t.Errorf("%v %v", got, err)
	}
	if got, err := read(e, "s", "b", -1); err != nil || len(got) != 5 {
		t.Errorf("%v %v", got, err)
	}
	for _, of := range []struct {
		session, stream string
		after           int
	}{{"s", "c", 0}, {"t", "a", 0}, {"s", "a", 5}, {"s", "a", 1 << 60}} {
		if got, err := read(e, of.session, of.stream, of.after); err == nil {
			t.Errorf("%+v: %v", of, got)
		}
	}
	gone := ""
	e.closed = func(s string) { gone = s }
	if err := e.SessionClosed(ctx, "s"); err != nil || gone != "s" || e.used != 0 || e.order.Len() != 0 || len(e.sessions) != 0 {
		t.Errorf("%v %q %d bytes, %d events", err, gone, e.used, e.order.Len())
	}
}

// TestEventsStayWithinBounds: whatever is sent, no session and no sum of them holds more than its share; what is gone is
// told, never left out in silence.
func TestEventsStayWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		each, all := rapid.IntRange(200, 2000).Draw(t, "each"), rapid.IntRange(200, 4000).Draw(t, "all")
		e := newEvents(each, all)
		sent := map[string][]string{}
		for i := range rapid.IntRange(1, 200).Draw(t, "n") {
			session, stream := rapid.SampledFrom([]string{"s1", "s2", "s3"}).Draw(t, "session"), fmt.Sprint(rapid.IntRange(0, 200).Draw(t, "stream"))
			switch rapid.IntRange(0, 30).Draw(t, "what") {
			case 0:
				if err := e.SessionClosed(ctx, session); err != nil {
					t.Fatal(err)
				}
				for key := range sent {
					if strings.HasPrefix(key, session+"/") {
						delete(sent, key)
					}
				}
			default:
				data := fmt.Sprint(i, strings.Repeat("x", rapid.IntRange(0, 300).Draw(t, "size")))
				if err := e.Append(ctx, session, stream, []byte(data)); err != nil {
					t.Fatal(err)
				}
				if e.sessions[session].streams[stream].next == 1 {
					sent[session+"/"+stream] = nil // new, or forgotten meanwhile and begun again
				}
				sent[session+"/"+stream] = append(sent[session+"/"+stream], data)
			}
			used, events := 0, 0
			for name, j := range e.sessions {
				mine, count := 0, 0
				for _, s := range j.streams {
					count += len(s.kept)
					for _, at := range s.kept {
						mine += len(at.Value.(*event).data) + eventCost
					}
				}
				if j.used != mine || j.used > each || j.order.Len() != count || len(j.streams) > maxStreams+1 {
					t.Fatalf("session %s: %d bytes counted, %d held, %d of %d events, %d streams", name, j.used, mine, j.order.Len(), count, len(j.streams))
				}
				used, events = used+mine, events+count
			}
			if e.used != used || e.used > all || e.order.Len() != events {
				t.Fatalf("%d bytes counted, %d held, at most %d; %d of %d events", e.used, used, all, e.order.Len(), events)
			}
		}
		for key, all := range sent {
			session, stream, _ := strings.Cut(key, "/")
			for after := range all {
				got, err := read(e, session, stream, after)
				if e.of(session, stream) == nil || errors.Is(err, mcp.ErrEventsPurged) {
					continue
				}
				if err != nil || !slices.Equal(got, all[after+1:]) {
					t.Fatalf("%s after %d: %v, %v instead of %v", key, after, err, got, all[after+1:])
				}
			}
		}
	})
}
