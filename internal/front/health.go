package front

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// Health is what the daemon tells of itself. Neither holds a value of the configuration, or a secret.
type Health struct {
	// Ready is nil when writes can be recorded and the ledger has been verified; else it says what is missing.
	Ready func(ctx context.Context) error
	// State is the whole picture. It may take a second.
	State func(ctx context.Context) State
}

// State is the answer of /health.
type State struct {
	Status     string `json:"status"` // "ok", or "degraded" when something below is not as it should be
	Version    string `json:"version"`
	Configured bool   `json:"configured"` // there is at least one target
	Targets    struct {
		Configured int `json:"configured"`
		Reachable  int `json:"reachable"`
		Unknown    int `json:"unknown"` // not asked yet
	} `json:"targets"`
	Ledger struct {
		Writable bool   `json:"writable"`
		Verified string `json:"verified"` // "yes", "no", "not yet"
		Records  int64  `json:"records,omitempty"`
	} `json:"ledger"`
	Anchored struct {
		Configured bool `json:"configured"`
		Outside    bool `json:"outside"` // one of them lies on another machine
		Current    bool `json:"current"` // every one holds what it should
	} `json:"anchored"`
	Switches struct {
		Killed       bool      `json:"killed"`
		ArmingNeeded bool      `json:"arming_needed"`
		ArmedUntil   time.Time `json:"armed_until,omitzero"`
	} `json:"switches"`
	Separate struct {
		OK      bool     `json:"ok"`
		Highest string   `json:"highest_approval"`
		Why     []string `json:"why_not,omitempty"`
	} `json:"separate"`
	Waiting     int       `json:"plans_waiting"`
	Overridden  []string  `json:"overridden,omitempty"` // keys that the environment set; never their values
	Certificate time.Time `json:"certificate_until,omitzero"`
	Problems    []string  `json:"problems,omitempty"` // in words, without names of this site
	Notes       []string  `json:"notes,omitempty"`    // what is as configured, and good to know
}

// own are the paths of the front itself.
func (f *Front) own() []Mount {
	get := func(h http.HandlerFunc) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet && r.Method != http.MethodHead {
				w.Header().Set("Allow", "GET, HEAD")
				fail(w, http.StatusMethodNotAllowed, "invalid", "this method is not allowed here", "Allowed: GET, HEAD.")
				return
			}
			h(w, r)
		})
	}
	remembered := &remembered{ask: f.state}
	return []Mount{
		{Pattern: "/healthz", Handler: get(func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusOK, map[string]string{"status": "ok"})
		})},
		{Pattern: "/readyz", Handler: get(func(w http.ResponseWriter, r *http.Request) {
			if f.c.Health.Ready != nil {
				if err := f.c.Health.Ready(r.Context()); err != nil {
					answer(w, http.StatusServiceUnavailable, map[string]string{"status": "not ready", "why": err.Error()})
					return
				}
			}
			answer(w, http.StatusOK, map[string]string{"status": "ready"})
		})},
		{Pattern: "/health", Handler: get(func(w http.ResponseWriter, r *http.Request) { answer(w, http.StatusOK, remembered.get(r.Context())) })},
		{Pattern: "/metrics", Handler: get(f.metrics.serve)},
	}
}

func (f *Front) state(ctx context.Context) State {
	var s State
	if f.c.Health.State != nil {
		s = f.c.Health.State(ctx)
	}
	s.Version = f.c.Version
	if f.cert != nil {
		until, fault := f.cert.state()
		s.Certificate = until
		if fault != nil {
			s.Problems = append(s.Problems, "the certificate files were changed and cannot be used; the one before stays in force")
		}
		if time.Until(until) < 14*24*time.Hour {
			s.Problems = append(s.Problems, "the certificate ends within 14 days")
		}
	}
	s.Status = "ok"
	if len(s.Problems) > 0 || !s.Ledger.Writable || s.Ledger.Verified == "no" || s.Targets.Reachable+s.Targets.Unknown < s.Targets.Configured {
		s.Status = "degraded"
	}
	return s
}

// remembered asks at most every two seconds, however many ask it.
type remembered struct {
	ask func(context.Context) State

	mu    sync.Mutex
	at    time.Time
	state State
}

func (m *remembered) get(ctx context.Context) State {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.at) > 2*time.Second {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		m.state, m.at = m.ask(ctx), time.Now()
	}
	return m.state
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}
