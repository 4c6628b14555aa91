package identity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync"
	"time"

	"castellan/internal/gate"
)

const (
	keysLife  = time.Hour   // how long a key set is believed
	keysAgain = time.Minute // how soon it is asked for again when a token names an unknown key
)

// keyCache keeps the key sets of providers by address. It is only a cache: any process may have another.
type keyCache struct {
	mu   sync.Mutex
	sets map[string]*keySet
}

type keySet struct {
	mu      sync.Mutex
	keys    []jwk
	fetched time.Time
	tried   time.Time
}

func (c *keyCache) of(address string) *keySet {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sets == nil {
		c.sets = map[string]*keySet{}
	}
	s := c.sets[address]
	if s == nil {
		s = &keySet{}
		c.sets[address] = s
	}
	return s
}

// signedBy verifies a token's signature with the keys at an address. A key that is not known yet is looked for once a
// minute at most, whatever tokens name.
func (i *Identity) signedBy(ctx context.Context, t *jwt, address string) error {
	s := i.keys.of(address)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := i.now()
	if now.Sub(s.fetched) >= keysLife || now.Before(s.fetched) {
		s.keys = nil
	}
	for attempt := 0; ; attempt++ {
		for _, k := range s.keys {
			if t.fits(k) {
				return nil
			}
		}
		// The wait counts from the last try, good or not, unless there is nothing to verify with.
		if attempt > 0 || len(s.keys) > 0 && now.Sub(s.tried) < keysAgain {
			return errJWTKey
		}
		s.tried = now
		b, err := i.fetch(ctx, address)
		if err != nil {
			return err
		}
		keys, err := parseKeys(b)
		if err != nil {
			return unreachable("ask the provider for its keys", err)
		}
		s.keys, s.fetched = keys, now
	}
}

func unreachable(what string, err error) error {
	return &gate.Error{Kind: gate.ErrUnavailable, Message: "cannot " + what, Changed: "nothing", Hint: "Try again later, or sign in otherwise; the daemon's log says more.", Cause: fmt.Errorf("%s: %w", what, err)}
}

// fetch gets a JSON document from an outside provider.
func (i *Identity) fetch(ctx context.Context, address string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, unreachable("ask the provider", err)
	}
	r.Header.Set("Accept", "application/json")
	return i.outsideJSON(r)
}

// outsideJSON sends a request to a provider; the answer must be 200 and JSON.
func (i *Identity) outsideJSON(r *http.Request) ([]byte, error) {
	select {
	case i.realms <- struct{}{}:
		defer func() { <-i.realms }()
	case <-r.Context().Done():
		return nil, unreachable("ask the provider", r.Context().Err())
	}
	resp, err := i.outside.Do(r)
	if err != nil {
		i.log.Warn("outside provider not reached", "host", r.URL.Host, "error", err)
		return nil, unreachable("ask the provider", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, unreachable("read the provider's answer", err)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode != http.StatusOK || kind != "application/json" && kind != "application/jwk-set+json" {
		i.log.Warn("outside provider answered with something else", "host", r.URL.Host, "status", resp.StatusCode, "type", clip(kind, 60))
		return nil, unreachable("use the provider's answer", &answerError{resp.StatusCode, kind})
	}
	return b, nil
}

// answerError is an answer that is no JSON of a success.
type answerError struct {
	status int
	kind   string
}

func (e *answerError) Error() string {
	return fmt.Sprintf("it answered %d with %q, not 200 with JSON", e.status, clip(e.kind, 60))
}

// denies says that the provider refused, rather than that it could not be asked.
func denies(err error) bool {
	var a *answerError
	return errors.As(err, &a) && a.status >= 400 && a.status < 500 && a.status != http.StatusTooManyRequests
}
