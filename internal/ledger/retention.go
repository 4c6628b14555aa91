package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// DropPart removes one part of one record, for redaction, and records that in
// the write tree with e (actor, reason). The leaf keeps the part's commitment,
// so the tree and every proof stay valid.
func (l *Log) DropPart(ctx context.Context, rows Sweeper, tree Tree, index int64, name string, e Entry) (Receipt, error) {
	if !tree.valid() || index < 0 || !partName(name) {
		return Receipt{}, fmt.Errorf("drop part %q of record %d: no such tree, record or part", clip(name), index)
	}
	n, err := rows.DropParts(ctx, tree, index, index+1, []string{name})
	if err != nil {
		return Receipt{}, fmt.Errorf("drop part %s of record %d: %w", name, index, err)
	}
	if n == 0 {
		return Receipt{}, fmt.Errorf("drop part %s of record %d: it is not there (already dropped, or never was)", name, index)
	}
	return l.sweepRecord(ctx, rows, e, sweep{Tree: tree, PartsFrom: index, PartsBelow: index + 1, Names: []string{name}}, n, 0)
}

// Retention says what a sweep removes. Zero fields remove nothing.
type Retention struct {
	Tree Tree
	// PartsBefore: parts of records older than this go.
	PartsBefore time.Time
	// RecordsBefore: whole records older than this go, except those that
	// verification needs and those whose kind is in Keep. Leaf hashes stay.
	RecordsBefore time.Time
	Keep          []string
	// From: records below this were dealt with by an earlier sweep (its Next) and are not looked at again.
	From int64
	// AnchoredSize: only records below this are touched, since they are known
	// outside; math.MaxInt64 when nothing is anchored.
	AnchoredSize int64
	// Trusted is a time at which the clock was known to be right, zero when there is none. MaxJump refuses a sweep when
	// the clock went further than this from one to the next of that time, the newest records of a tree after it, and
	// now, or is behind them: 0 means 45 days. A wrong clock must not empty the ledger.
	Trusted time.Time
	MaxJump time.Duration
	// MaxRecords bounds one sweep: 0 means 50,000. More is left for the next.
	MaxRecords int64
	// Entry carries actor and further data of the record of the sweep.
	Entry Entry
}

// Swept says what a sweep did.
type Swept struct {
	Parts, Records int64
	More           bool     // the bound was met
	Next           int64    // the first record that the sweep has not dealt with
	Receipt        *Receipt // of the record of the sweep; nil when nothing went
}

// ErrClock says that the clock cannot be right.
var ErrClock = errors.New("the clock jumped")

// sweep is what a KindSweep record says.
type sweep struct {
	Tree Tree
	// Parts went from records PartsFrom ≤ index < PartsBelow.
	PartsFrom, PartsBelow int64
	Names                 []string // nil: all
	// RecordsBelow: records below it may be absent, by this or an older sweep.
	RecordsBelow int64
	// Dropped is how many records this sweep removed.
	Dropped int64
}

func parseSweep(h *Header) (sweep, bool) {
	m, err := h.Fields()
	if err != nil {
		return sweep{}, false
	}
	tree, _ := m["tree"].(string)
	number := func(name string) int64 {
		n, _ := m[name].(json.Number)
		i, err := n.Int64()
		if err != nil || i < 0 {
			return 0
		}
		return i
	}
	s := sweep{Tree: Tree(tree), RecordsBelow: number("records_below"), Dropped: number("records_dropped")}
	// Nothing that comes after a sweep can have been removed by it.
	if s.Tree == h.Tree && s.RecordsBelow > h.Seq {
		return sweep{}, false
	}
	return s, s.Tree.valid()
}

func (l *Log) sweepRecord(ctx context.Context, rows Rows, e Entry, s sweep, parts, records int64) (Receipt, error) {
	e.Kind = KindSweep
	data := map[string]any{}
	for k, v := range e.Data {
		data[k] = v
	}
	data["tree"], data["parts_dropped"], data["records_dropped"] = string(s.Tree), parts, records
	if s.PartsBelow > s.PartsFrom {
		data["parts_from"], data["parts_below"] = s.PartsFrom, s.PartsBelow
	}
	if s.Names != nil {
		data["part_names"] = s.Names
	}
	if s.RecordsBelow > 0 {
		data["records_below"] = s.RecordsBelow
	}
	e.Data = data
	got, err := l.Append(ctx, rows, Write, e)
	if err != nil {
		return Receipt{}, fmt.Errorf("record the removal: %w", err)
	}
	return got[0], nil
}

// Sweep applies retention to one tree and records what it did in the write
// tree, within the transaction behind rows.
func (l *Log) Sweep(ctx context.Context, rows Sweeper, r Retention) (Swept, error) {
	if !r.Tree.valid() || r.AnchoredSize < 0 {
		return Swept{}, errors.New("sweep ledger: no tree or a negative anchored size is given")
	}
	maxRecords := r.MaxRecords
	if maxRecords <= 0 {
		maxRecords = 50_000
	}
	now := l.now()
	if err := l.CheckClock(ctx, rows, r.Trusted, r.MaxJump); err != nil {
		return Swept{}, fmt.Errorf("sweep ledger: %w; nothing was removed", err)
	}
	if r.PartsBefore.After(now) || r.RecordsBefore.After(now) {
		return Swept{}, errors.New("sweep ledger: the bound lies in the future; nothing was removed")
	}
	head, err := rows.Head(ctx, r.Tree)
	if err != nil {
		return Swept{}, fmt.Errorf("sweep ledger: %w", err)
	}
	limit := min(head.Size, r.AnchoredSize)
	keep := append([]string{KindKey, KindSweep, KindGap}, r.Keep...)
	before := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return ceilMicro(t).Format(TimeLayout)
	}
	partsBefore, recordsBefore := before(r.PartsBefore), before(r.RecordsBefore)

	// With two bounds a record is looked at again for the other.
	once := partsBefore == recordsBefore || partsBefore == "" || recordsBefore == ""
	out := Swept{Next: max(0, r.From)}
	s := sweep{Tree: r.Tree, PartsFrom: math.MaxInt64}
	var recordRuns, partRuns runs
	var looked int64
	stop := errors.New("enough")
	err = rows.Scan(ctx, r.Tree, out.Next, limit, func(rec *Record) error {
		if rec.Header == nil {
			if once {
				out.Next = rec.Index + 1
			}
			return nil
		}
		// The signed header decides, not the columns beside it: else a changed
		// column would have retention remove the evidence.
		h, err := ParseHeader(rec.Header)
		leaf := tlog.RecordHash(rec.Header)
		if err != nil || h.Columns != rec.Columns || h.Seq != rec.Index || !bytes.HasPrefix(rec.Hashes, leaf[:]) {
			return fmt.Errorf("%w: record %d is not what was signed; verify the ledger", ErrTampered, rec.Index)
		}
		// Time runs upward but for small steps; the first record that is young
		// enough for everything ends the sweep.
		if (partsBefore == "" || rec.TS >= partsBefore) && (recordsBefore == "" || rec.TS >= recordsBefore) {
			return stop
		}
		goes := recordsBefore != "" && rec.TS < recordsBefore && !slices.Contains(keep, rec.Kind)
		if goes || partsBefore != "" && rec.TS < partsBefore && len(rec.Parts) > 0 {
			if looked++; looked > maxRecords {
				out.More = true
				return stop
			}
		}
		if goes {
			recordRuns.add(rec.Index)
			s.RecordsBelow = rec.Index + 1
			out.Parts += int64(len(rec.Parts))
		} else if partsBefore != "" && rec.TS < partsBefore && len(rec.Parts) > 0 {
			partRuns.add(rec.Index)
		}
		if once {
			out.Next = rec.Index + 1
		}
		return nil
	})
	if err != nil && !errors.Is(err, stop) {
		return Swept{}, fmt.Errorf("sweep ledger: %w", err)
	}
	for _, run := range recordRuns {
		n, err := rows.DropRecords(ctx, r.Tree, run[0], run[1])
		if err != nil {
			return Swept{}, fmt.Errorf("sweep ledger: remove records %d to %d: %w", run[0], run[1]-1, err)
		}
		out.Records += n
	}
	for _, run := range partRuns {
		n, err := rows.DropParts(ctx, r.Tree, run[0], run[1], nil)
		if err != nil {
			return Swept{}, fmt.Errorf("sweep ledger: remove parts of records %d to %d: %w", run[0], run[1]-1, err)
		}
		out.Parts += n
		s.PartsFrom, s.PartsBelow = min(s.PartsFrom, run[0]), run[1]
	}
	if out.Parts == 0 && out.Records == 0 {
		return out, nil
	}
	receipt, err := l.sweepRecord(ctx, rows, r.Entry, s, out.Parts, out.Records)
	if err != nil {
		return Swept{}, fmt.Errorf("sweep ledger: %w", err)
	}
	out.Receipt = &receipt
	return out, nil
}

// runs are half-open ranges of indexes.
type runs [][2]int64

func (r *runs) add(i int64) {
	if n := len(*r); n > 0 && (*r)[n-1][1] == i {
		(*r)[n-1][1]++
		return
	}
	*r = append(*r, [2]int64{i, i + 1})
}

// clockTail is how many of the newest records of each tree tell how the clock went.
const clockTail = 256

// CheckClock follows the clock from a time at which it was right, through the newest records, to now. A step of more
// than jump (0: 45 days), or back by more than a minute from the newest record, is an error that wraps ErrClock.
func (l *Log) CheckClock(ctx context.Context, rows Rows, trusted time.Time, jump time.Duration) error {
	if jump <= 0 {
		jump = 45 * 24 * time.Hour
	}
	now := l.now()
	var seen []time.Time
	if !trusted.IsZero() {
		seen = append(seen, trusted)
	}
	for _, tree := range Trees() {
		head, err := rows.Head(ctx, tree)
		if err != nil {
			return err
		}
		err = rows.Scan(ctx, tree, max(0, head.Size-clockTail), head.Size, func(r *Record) error {
			// As signed: a column that was changed is for the sweep to find.
			h, err := ParseHeader(r.Header)
			if err != nil {
				return nil
			}
			if t, err := time.Parse(TimeLayout, h.TS); err == nil && t.After(trusted) {
				seen = append(seen, t)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if len(seen) == 0 {
		return nil
	}
	slices.SortFunc(seen, time.Time.Compare)
	for i, t := range append(seen[1:], now) {
		if d := t.Sub(seen[i]); d > jump || d < -time.Minute {
			return fmt.Errorf("%w: from %s to %s", ErrClock, seen[i].UTC().Format(TimeLayout), t.UTC().Format(TimeLayout))
		}
	}
	return nil
}
