package mcpserver

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

func TestKinds(t *testing.T) {
	for _, c := range []struct {
		message         string
		request, answer bool
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, true, false},
		{`{"jsonrpc":"2.0","method":"tools/call","params":{"id":3,"result":1},"id":"a\"b"}`, true, false},
		{`{"jsonrpc":"2.0","method":"notifications/initialized","params":{"id":1,"result":2}}`, false, false},
		{`{"jsonrpc":"2.0","id":1,"result":{"method":"x"}}` + "\n", false, true},
		{`{"jsonrpc":"2.0","error":{"code":1,"message":"no"},"id":2}`, false, true},
	} {
		messages, refusal := messagesOf([]byte(c.message), false)
		if len(messages) != 1 || asks(messages[0]) != c.request || answers(messages[0]) != c.answer {
			t.Errorf("%s: %v, %s", c.message, messages, refusal)
		}
	}
	for _, none := range []string{`[1]`, ``, `{"id":`, "\n", `{"jsonrpc":"2.0","error":{"code":1,"message":"no"},"id":null}`} {
		if messages, _ := messagesOf([]byte(none), false); len(messages) > 0 {
			t.Errorf("%s became %v", none, messages)
		}
	}
	if l := newLines(io.Discard); l.Write(t.Context(), &jsonrpc.Response{Error: errors.New("to a line that had no id")}) != nil || l.open.count != -1 {
		t.Error("an answer is not counted")
	}
}

func TestPendingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := func(ctx context.Context, p *pending) time.Duration {
			began := time.Now()
			p.wait(ctx, time.Second)
			return time.Since(began)
		}
		var p pending
		if d := took(t.Context(), &p); d != 0 {
			t.Errorf("nothing is pending, and it waits %v", d)
		}
		p.add(1)
		p.add(1)
		if d := took(t.Context(), &p); d != time.Second {
			t.Errorf("two are pending, and it waits %v", d)
		}
		go func() {
			time.Sleep(100 * time.Millisecond)
			p.add(-1)
			time.Sleep(100 * time.Millisecond)
			p.add(-1)
		}()
		if d := took(t.Context(), &p); d != 200*time.Millisecond {
			t.Errorf("it waits %v for the last answer", d)
		}
		p.add(1)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if d := took(ctx, &p); d != 50*time.Millisecond {
			t.Errorf("it waits %v although it was told to end", d)
		}
	})
}
