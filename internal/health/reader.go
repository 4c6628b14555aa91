package health

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/regex"
)

// Limits of one round of reads. A node's API works with few processes, so that few reads run at once.
const (
	perRead   = 8 * time.Second  // one read; a dead storage or node must not hold up the rest
	perRound  = 35 * time.Second // all of them
	parallel  = 12               // reads at once
	perNode   = 3                // of them on one node
	nodeTries = 2                // reads of one node that may run into the limit before the rest is not asked any more
)

// ask is one read of one part.
type ask struct {
	part  string // what it tells, for people
	where string // "node pve1", "CT 105"
	node  string // the node that must answer; empty = whichever
	hides Level  // the worst that it could tell
	read  gate.Read
	// none says that this error is an answer: there is no such thing here (Ceph is not installed).
	none func(err error) bool

	rows   []estate.Config // the answer as rows; one object = one row
	raw    json.RawMessage
	unread *Unread
	past   *series   // the answer as a load history, once it was asked for as one
	at     time.Time // when the answer came
	took   time.Duration
}

// ok says whether it was read.
func (a *ask) ok() bool { return a != nil && a.unread == nil }

// row is the answer's only object.
func (a *ask) row() estate.Config {
	if a == nil || len(a.rows) == 0 {
		return nil
	}
	return a.rows[0]
}

// source names the read for evidence.
func (a *ask) source() string {
	text := a.read.Operation
	for k, v := range a.read.Params {
		text = strings.ReplaceAll(text, "{"+k+"}", v)
	}
	if t := a.read.Params["timeframe"]; t != "" {
		text += "?timeframe=" + t
	}
	return text
}

// reader reads parts of one target, a few at once.
type reader struct {
	v      gate.View
	target string

	mu    sync.Mutex
	reads int
	slow  map[string]int // node → reads that ran into the limit
}

func newReader(v gate.View, target string) *reader {
	return &reader{v: v, target: target, slow: map[string]int{}}
}

// all reads everything that is asked and returns when all have answered or their time is over.
func (r *reader) all(ctx context.Context, asks ...*ask) {
	asks = slices.DeleteFunc(asks, func(a *ask) bool { return a == nil })
	ctx, stop := context.WithTimeout(ctx, perRound)
	defer stop()
	slots := make(chan struct{}, parallel)
	nodes := map[string]chan struct{}{}
	for _, a := range asks {
		if a.node != "" && nodes[a.node] == nil {
			nodes[a.node] = make(chan struct{}, perNode)
		}
	}
	var wait sync.WaitGroup
	for _, a := range asks {
		wait.Go(func() {
			if own := nodes[a.node]; own != nil {
				own <- struct{}{}
				defer func() { <-own }()
			}
			slots <- struct{}{}
			defer func() { <-slots }()
			r.one(ctx, a)
		})
	}
	wait.Wait()
}

// one reads one part. A driver that does not come back in time is left behind.
func (r *reader) one(ctx context.Context, a *ask) {
	r.mu.Lock()
	tired := a.node != "" && r.slow[a.node] >= nodeTries
	if !tired && ctx.Err() == nil {
		r.reads++
	}
	r.mu.Unlock()
	if tired {
		a.fail("node " + a.node + " did not answer other reads in time, so that it was not asked")
		return
	}
	if ctx.Err() != nil {
		a.fail("the time for the whole call was over before it was asked")
		return
	}
	ctx, stop := context.WithTimeout(ctx, perRead)
	defer stop()
	type result struct {
		answer gate.Answer
		err    error
	}
	done := make(chan result, 1)
	began := time.Now()
	go func() {
		answer, err := r.v.Read(ctx, r.target, a.read)
		done <- result{answer, err}
	}()
	var got result
	select {
	case got = <-done:
	case <-ctx.Done():
		got.err = ctx.Err()
	}
	a.at, a.took = r.v.Now(), time.Since(began)
	if got.err != nil {
		if errors.Is(got.err, context.DeadlineExceeded) || errors.Is(got.err, context.Canceled) {
			r.mu.Lock()
			r.slow[a.node]++
			r.mu.Unlock()
			a.fail(fmt.Sprintf("no answer within %s", perRead))
			return
		}
		a.failed(got.err)
		return
	}
	a.raw = got.answer.Data
	rows, err := rowsOf(got.answer.Data)
	switch {
	case err != nil:
		a.fail("the answer has an unknown form")
	case len(got.answer.Missing) > 0:
		a.rows = rows
		a.fail("incomplete: " + clean(strings.Join(got.answer.Missing, "; "), 160))
	default:
		a.rows = rows
	}
}

func (a *ask) fail(why string) {
	a.unread = &Unread{Part: a.part, Where: a.where, Why: why, Hides: a.hides}
}

var deniedText = &regex.Lazy{Expr: `Permission check failed \((/[^,()]*), ([A-Za-z.|]+)\)`}

// failed sorts an error: none there, a right that lacks, or something else.
func (a *ask) failed(err error) {
	if a.none != nil && a.none(err) {
		return
	}
	text := err.Error()
	var u *gate.UpstreamError
	if errors.As(err, &u) {
		text = u.Message
	}
	a.fail(clean(text, 160))
	if u != nil { // castellan's own words may go on, a server's are told in castellan's
		a.unread.Why = cmp.Or(said(text), fmt.Sprintf("the server answered with an error (status %d)", u.Status))
	}
	switch m := deniedText.FindStringSubmatch(text); {
	case m != nil:
		a.unread.Why, a.unread.Missing = "castellan's user lacks a privilege", strings.ReplaceAll(m[2], "|", " or ")+" on "+m[1]
	case u != nil && (u.Kind == gate.ErrDenied || u.Status == 403):
		a.unread.Why, a.unread.Missing = "castellan's user lacks a privilege", "the server does not say which"
	}
}

func rowsOf(data json.RawMessage) ([]estate.Config, error) {
	text := strings.TrimSpace(string(data))
	switch {
	case text == "" || text == "null":
		return nil, nil
	case text[0] == '{':
		c, err := estate.ParseConfig(data)
		return []estate.Config{c}, err
	case text[0] != '[':
		return nil, errors.New("read answer: neither list nor object")
	}
	var list []json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	out := make([]estate.Config, 0, len(list))
	for _, raw := range list {
		c, err := estate.ParseConfig(raw)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// num reads a figure; known is false when the answer has none.
func num(c estate.Config, key string) (f float64, known bool) {
	text, ok := c[key]
	if !ok || strings.TrimSpace(text) == "" {
		return 0, false
	}
	return number(text)
}

// whole reads a whole number, 0 when there is none.
func whole(c estate.Config, key string) int64 {
	f, _ := num(c, key)
	return int64(f)
}

// sub reads an object inside an answer.
func sub(c estate.Config, key string) estate.Config {
	out, err := estate.ParseConfig(json.RawMessage(c[key]))
	if err != nil {
		return nil
	}
	return out
}

// unread collects what could not be read of these asks.
func unread(asks ...*ask) []Unread {
	var out []Unread
	for _, a := range asks {
		if a != nil && a.unread != nil {
			out = append(out, *a.unread)
		}
	}
	return out
}
