package front

import (
	"cmp"
	"crypto/subtle"
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// metrics are served to this machine, or for a token, in the text format of Prometheus. Every label has few values, none
// of them a client's.
type metrics struct {
	token   string
	version string
	health  Health

	mu       sync.Mutex
	requests map[[2]string]float64 // route, class of status
	refused  map[string]float64    // reason
	took     map[string]*spread    // route
}

// spread counts durations by upper bounds.
type spread struct {
	counts [len(bounds)]float64
	sum, n float64
}

var bounds = [...]float64{.005, .02, .1, .5, 2, 10, 60} // seconds

func newMetrics(version string, h Health, token string) *metrics {
	return &metrics{token: token, version: version, health: h, requests: map[[2]string]float64{}, refused: map[string]float64{}, took: map[string]*spread{}}
}

func (m *metrics) observe(route string, status int, took time.Duration) {
	route = cmp.Or(route, "none")
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests[[2]string{route, fmt.Sprintf("%dxx", status/100)}]++
	s := m.took[route]
	if s == nil {
		s = &spread{}
		m.took[route] = s
	}
	s.n++
	s.sum += took.Seconds()
	for i, b := range bounds {
		if took.Seconds() <= b {
			s.counts[i]++
		}
	}
}

func (m *metrics) turnedAway(reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refused[reason]++
}

// serve answers this machine itself, and whoever has the token.
func (m *metrics) serve(w http.ResponseWriter, r *http.Request) {
	direct, _ := r.Context().Value(directKey{}).(bool)
	given, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	known := m.token != "" && bearer && subtle.ConstantTimeCompare([]byte(given), []byte(m.token)) == 1
	if !known && (!direct || bearer) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="metrics"`)
		fail(w, http.StatusUnauthorized, "denied", "metrics are for this machine, or for the token in daemon.metrics_token_file", "Send it as a bearer token.")
		return
	}
	var s State
	if m.health.State != nil {
		s = m.health.State(r.Context())
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	m.write(w, s)
}

func (m *metrics) write(out io.Writer, h State) {
	head := func(name, kind, help string) {
		fmt.Fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	}
	put := func(name string, value float64, labels ...string) {
		var l []string
		for i := 0; i+1 < len(labels); i += 2 {
			l = append(l, fmt.Sprintf("%s=%q", labels[i], labels[i+1]))
		}
		text := ""
		if len(l) > 0 {
			text = "{" + strings.Join(l, ",") + "}"
		}
		fmt.Fprintf(out, "%s%s %s\n", name, text, strconv.FormatFloat(value, 'g', -1, 64))
	}
	gauge := func(name, help string, value float64, labels ...string) {
		head(name, "gauge", help)
		put(name, value, labels...)
	}
	truth := map[bool]float64{true: 1}
	gauge("castellan_build_info", "The version that runs.", 1, "version", m.version)
	head("castellan_targets", "gauge", "Targets by whether they answered.")
	put("castellan_targets", float64(h.Targets.Reachable), "state", "reachable")
	put("castellan_targets", float64(h.Targets.Unknown), "state", "unknown")
	put("castellan_targets", float64(h.Targets.Configured-h.Targets.Reachable-h.Targets.Unknown), "state", "unreachable")
	gauge("castellan_ledger_writable", "Whether writes can be recorded.", truth[h.Ledger.Writable])
	gauge("castellan_ledger_verified", "Whether the ledger was verified since the start.", truth[h.Ledger.Verified == "yes"])
	gauge("castellan_ledger_broken", "Whether the last verification of the ledger failed.", truth[h.Ledger.Verified == "no"])
	gauge("castellan_anchor_current", "Whether the newest head of the ledger is off this machine.", truth[h.Anchored.Current])
	gauge("castellan_killed", "Whether the kill switch is on.", truth[h.Switches.Killed])
	gauge("castellan_separate", "Whether the daemon is out of reach of those whom it serves.", truth[h.Separate.OK])
	gauge("castellan_plans_waiting", "Plans that wait for a person.", float64(h.Waiting))
	gauge("go_goroutines", "Goroutines now.", float64(runtime.NumGoroutine()))
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	gauge("go_memstats_heap_alloc_bytes", "Bytes in use.", float64(mem.HeapAlloc))
	gauge("go_memstats_sys_bytes", "Bytes taken from the system.", float64(mem.Sys))

	m.mu.Lock()
	defer m.mu.Unlock()
	head("castellan_http_requests_total", "counter", "Requests by route and class of status.")
	for _, k := range slices.SortedFunc(maps.Keys(m.requests), func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) }) {
		put("castellan_http_requests_total", m.requests[k], "route", k[0], "status", k[1])
	}
	head("castellan_http_refused_total", "counter", "Requests turned away at the door, by reason.")
	for _, k := range slices.Sorted(maps.Keys(m.refused)) {
		put("castellan_http_refused_total", m.refused[k], "reason", k)
	}
	head("castellan_http_request_seconds", "histogram", "Time until a request ended, by route.")
	for _, k := range slices.Sorted(maps.Keys(m.took)) {
		s := m.took[k]
		for i, b := range bounds {
			put("castellan_http_request_seconds_bucket", s.counts[i], "route", k, "le", strconv.FormatFloat(b, 'g', -1, 64))
		}
		put("castellan_http_request_seconds_bucket", s.n, "route", k, "le", "+Inf")
		put("castellan_http_request_seconds_sum", s.sum, "route", k)
		put("castellan_http_request_seconds_count", s.n, "route", k)
	}
}
