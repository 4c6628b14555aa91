package mcpserver

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestKindOf(t *testing.T) {
	for _, c := range []struct {
		message         string
		request, answer bool
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, true, false},
		{`{"method":"tools/call","params":{"id":3,"result":1},"id":"a\"b"}`, true, false},
		{`{"jsonrpc":"2.0","method":"notifications/initialized","params":{"id":1,"result":2}}`, false, false},
		{`{"jsonrpc":"2.0","id":1,"result":{"method":"x"}}` + "\n", false, true},
		{`{"jsonrpc":"2.0","error":{"code":1,"message":"no"},"id":null}`, false, true},
		{`[1]`, false, false}, {``, false, false}, {`{"id":`, false, false}, {"\n", false, false},
	} {
		if request, answer := kindOf([]byte(c.message)); request != c.request || answer != c.answer {
			t.Errorf("%s: request %v, answer %v", c.message, request, answer)
		}
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
