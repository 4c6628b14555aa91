package lab

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"strings"
	"time"
)

// The kinds of scripted failures.
const (
	faultBefore = "before the effect" // the connection is cut, nothing was done
	faultAfter  = "after the effect"  // it was done, then the connection is cut
	faultSlow   = "slow"              // answered after Delay
	faultCut    = "cut"               // done; half of the answer arrives
	faultHTML   = "html"              // a proxy's HTML page in place of the answer, nothing done
	faultStatus = "status"            // Status and Reason in place of the answer, nothing done
)

// Fault is one scripted failure.
type Fault struct {
	Kind   string   `json:"kind"`
	Method string   `json:"method,omitempty"` // empty: any
	Path   string   `json:"path,omitempty"`   // below the format, with * for one part and ** at the end for the rest; empty: any
	Skip   int      `json:"skip,omitempty"`   // let so many matching calls pass first
	Count  int      `json:"count,omitempty"`  // how often; 0: always
	Delay  Duration `json:"delay,omitempty"`  // of "slow"; 30 s when absent
	Status int      `json:"status,omitempty"` // of "status" and "html"
	Reason string   `json:"reason,omitempty"`
	Body   string   `json:"body,omitempty"`
}

// Duration is a time.Duration written as text, such as "1.5s".
type Duration time.Duration

// UnmarshalJSON takes a text or a number of seconds.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var secs float64
	if json.Unmarshal(b, &secs) == nil {
		*d = Duration(secs * float64(time.Second))
		return nil
	}
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return fmt.Errorf("read duration %s: %w", b, err)
	}
	v, err := time.ParseDuration(text)
	*d = Duration(v)
	return err
}

type fault struct {
	Fault
	kind string
	seen int
}

// FaultsFromFile reads a JSON list of faults.
func FaultsFromFile(name string) ([]Fault, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read faults: %w", err)
	}
	dec := json.NewDecoder(strings.NewReader(string(b)))
	dec.DisallowUnknownFields()
	var out []Fault
	if err := dec.Decode(&out); err != nil {
		return nil, fmt.Errorf("read faults %s: %w", name, err)
	}
	for i, f := range out {
		switch f.Kind {
		case faultBefore, faultAfter, faultSlow, faultCut, faultHTML, faultStatus:
		default:
			return nil, fmt.Errorf("read faults %s: entry %d: unknown kind %q (before the effect, after the effect, slow, cut, html, status)", name, i+1, f.Kind)
		}
	}
	return out, nil
}

// SetFaults replaces all scripted failures.
func (l *Lab) SetFaults(list []Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = nil
	for _, f := range list {
		l.faults = append(l.faults, &fault{Fault: f, kind: f.Kind})
	}
}

func (l *Lab) matchFault(method, rel string) *fault {
	for _, f := range l.faults {
		if f.Method != "" && !strings.EqualFold(f.Method, method) || !pathMatch(f.Path, rel) {
			continue
		}
		f.seen++
		if f.seen <= f.Skip || f.Count > 0 && f.seen > f.Skip+f.Count {
			continue
		}
		return f
	}
	return nil
}

func pathMatch(pattern, rel string) bool {
	if pattern == "" || pattern == "**" {
		return true
	}
	if head, ok := strings.CutSuffix(pattern, "/**"); ok {
		parts, want := pathParts(rel), pathParts(head)
		if len(parts) < len(want) {
			return false
		}
		return pathMatch(head, "/"+strings.Join(parts[:len(want)], "/"))
	}
	parts, want := pathParts(rel), pathParts(pattern)
	if len(parts) != len(want) {
		return false
	}
	for i := range parts {
		if ok, err := path.Match(want[i], parts[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

// before is what a fault does in place of the call.
func (f *fault) before() (*response, bool) {
	switch f.kind {
	case faultBefore:
		return &response{cut: cutBefore}, true
	case faultHTML:
		a := &response{status: f.Status, reason: f.Reason, ctype: "text/html", body: []byte(f.Body)}
		if a.status == 0 {
			a.status, a.reason = 502, firstNonEmpty(f.Reason, "Bad Gateway")
		}
		if len(a.body) == 0 {
			a.body = []byte("<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n</body>\r\n</html>\r\n")
		}
		return a, true
	case faultStatus:
		return &response{status: f.Status, reason: f.Reason, body: []byte(f.Body)}, true
	}
	return nil, false
}

// after is what a fault does with the call's answer.
func (f *fault) after(a *response) *response {
	if a == nil {
		return a
	}
	switch f.kind {
	case faultAfter:
		return &response{cut: cutBefore}
	case faultCut:
		a.cut = cutHalf
	case faultSlow:
		a.delay = time.Duration(f.Delay)
		if a.delay == 0 {
			a.delay = 30 * time.Second
		}
	}
	return a
}
