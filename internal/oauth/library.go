package oauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"castellan/internal/gate"
)

// library keeps the metadata documents of clients as long as their headers let it, and fetches each only once at a time.
type library struct {
	fetch Fetch
	http  *http.Client
	hosts []string // allow-list; empty: every public host
	clock gate.Clock
	slots chan struct{} // fetches under way

	mu      sync.Mutex
	entries map[string]*entry
}

type entry struct {
	ready chan struct{} // closed when the rest is there
	doc   *client
	err   error
	until time.Time
}

const (
	maxEntries  = 256
	maxFetches  = 8
	failureLife = time.Minute // of a failure, so that it is not asked for again at once
)

func newLibrary(f Fetch, hosts []string, clock gate.Clock) *library {
	return &library{fetch: f, http: f.client(), hosts: hosts, clock: clock, slots: make(chan struct{}, maxFetches), entries: map[string]*entry{}}
}

// maxClientID bounds a client id, which is also the id of a document in the store.
const maxClientID = 400

// checkDocumentID takes client ids that are the https URL of a document, in the one form in which each can be written.
func checkDocumentID(id string) (host string, err error) {
	if len(id) > maxClientID {
		return "", fmt.Errorf("it is longer than %d characters", maxClientID)
	}
	if strings.ContainsAny(id, "?#\\%@*\"<>^`{|}") || strings.IndexFunc(id, func(r rune) bool { return r <= 0x20 || r >= 0x7f }) >= 0 {
		return "", errors.New("it has characters that such an address must not have")
	}
	u, err := url.Parse(id)
	if err != nil || u.Scheme != "https" || u.Opaque != "" || u.User != nil || !strings.HasPrefix(id, "https://"+u.Host+"/") {
		return "", errors.New("it is not of the form https://host/path")
	}
	if !isHostName(u.Hostname()) || u.Port() != "" && u.Host != u.Hostname()+":"+u.Port() || strings.HasSuffix(u.Host, ":") {
		return "", errors.New("its host is no DNS name in small letters")
	}
	if u.Path == "/" {
		return "", errors.New("it has no path")
	}
	for _, part := range strings.Split(u.Path[1:], "/") {
		if part == "." || part == ".." {
			return "", errors.New("it has . or .. in its path")
		}
	}
	return u.Hostname(), nil
}

// allowed says whether documents of a host are taken.
func (l *library) allowed(host string) bool {
	return len(l.hosts) == 0 || slices.ContainsFunc(l.hosts, func(h string) bool {
		below, wild := strings.CutPrefix(h, "*.")
		return h == host || wild && strings.HasSuffix(host, "."+below)
	})
}

// kept returns what is known of a document without asking anybody; ok is false when it has to be fetched.
func (l *library) kept(id string) (doc *client, err error, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[id]
	if e == nil {
		return nil, nil, false
	}
	select {
	case <-e.ready:
		return e.doc, e.err, l.clock().Before(e.until)
	default:
		return nil, nil, false
	}
}

// get returns the document of a client id, which has been checked, fetching it when need be.
func (l *library) get(ctx context.Context, id string) (*client, error) {
	l.mu.Lock()
	e := l.entries[id]
	if e != nil {
		select {
		case <-e.ready:
			if l.clock().Before(e.until) {
				l.mu.Unlock()
				return e.doc, e.err
			}
			e = nil
		default: // somebody fetches it now
		}
	}
	if e != nil {
		l.mu.Unlock()
		select {
		case <-e.ready:
			return e.doc, e.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	select {
	case l.slots <- struct{}{}:
	default:
		l.mu.Unlock()
		return nil, errBusy
	}
	e = &entry{ready: make(chan struct{})}
	l.room()
	l.entries[id] = e
	l.mu.Unlock()
	// Others may wait for the answer, so it does not end with whoever asked first.
	e.doc, e.err, e.until = l.ask(context.WithoutCancel(ctx), id)
	close(e.ready)
	<-l.slots
	return e.doc, e.err
}

var errBusy = errors.New("too many documents are being fetched")

func (l *library) ask(ctx context.Context, id string) (*client, error, time.Time) {
	body, keep, err := l.fetch.get(ctx, l.http, id)
	var doc *client
	if err == nil {
		doc, err = parseDocument(id, body)
	}
	if err != nil {
		return nil, err, l.clock().Add(failureLife)
	}
	return doc, nil, l.clock().Add(keep)
}

// room drops what has expired, then whatever expires first. Only l.get calls it.
func (l *library) room() {
	for len(l.entries) >= maxEntries {
		first, at := "", time.Time{}
		for id, e := range l.entries {
			select {
			case <-e.ready:
				if first == "" || e.until.Before(at) {
					first, at = id, e.until
				}
			default:
			}
		}
		if first == "" {
			return // as many as that are never under way
		}
		delete(l.entries, first)
	}
}
