package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Undo says how a step is taken back.
type Undo struct {
	None string   `json:"none,omitempty"` // why it cannot be undone; empty when it can
	How  string   `json:"how,omitempty"`  // in words
	Call *Request `json:"call,omitempty"` // the call that takes it back, where it is known beforehand
	// Sheets are the configurations that the step changes. The gate reads them just before it is sent and again when it has
	// ended: what differs is what undo restores.
	Sheets []Sheet `json:"sheets,omitempty"`
	// Kept is the SHA-256 (hex) of the file that the step writes, where its answer holds, sealed, what it replaced: see
	// Past.Replaced.
	Kept string `json:"kept,omitempty"`
	// Lost is what does not come back with the rest, and why: keys that cannot be read must be typed again.
	Lost []string `json:"lost,omitempty"`
}

// Possible says whether there is a way back that castellan can plan.
func (u Undo) Possible() bool {
	return u.None == "" && (u.Call != nil || len(u.Sheets) > 0 || u.Kept != "")
}

// Sheet is a configuration that can be read and written back.
type Sheet struct {
	Name string    `json:"name"` // "storage nas"
	Form SheetForm `json:"form"`
	Read Read      `json:"read"`
	// At leads into the answer (RFC 6901), Where keeps rows with these texts ("a|b" takes either), Fields keeps these fields.
	At     string            `json:"at,omitempty"`
	Where  map[string]string `json:"where,omitempty"`
	Fields []string          `json:"fields,omitempty"`
	// Update, Create and Delete are the operations that write it, where there are such; Place are the values of their paths.
	Update string            `json:"update,omitempty"`
	Create string            `json:"create,omitempty"`
	Delete string            `json:"delete,omitempty"`
	Place  map[string]string `json:"place,omitempty"`
}

// SheetForm says what an answer means.
type SheetForm string

// The forms: one object, or none when it does not exist; rows without an order; a list in which the order counts.
const (
	SheetObject SheetForm = "object"
	SheetSet    SheetForm = "set"
	SheetList   SheetForm = "list"
)

// Image is what a sheet showed: the fields of its rows as JSON in canonical form. An object that does not exist has none.
type Image struct {
	Rows []map[string]json.RawMessage `json:"rows"`
	// Unread says why it could not be read; then Rows say nothing.
	Unread string `json:"unread,omitempty"`
}

// Keeper knows how configurations are read and written back.
type Keeper interface {
	// Undo says how the step is taken back, as far as that is not the planner's own matter: s.Undo is what the planner said.
	Undo(ctx context.Context, v View, s Step) Undo
}

// Past is what a View also is to operations that look back at what was done.
type Past interface {
	// Recorded is a plan that this caller may see.
	Recorded(ctx context.Context, id string) (*PlanRecord, error)
	// Earlier lists plans that this caller may see, newest first.
	Earlier(ctx context.Context, f PlanFilter) ([]*PlanRecord, error)
	// Replaced is the file that a step of a plan replaced, its content opened; see Undo.Kept.
	Replaced(ctx context.Context, id string, step int) (*RunFile, error)
	// Needed tells what plans need of a target that have not ended, whosever they are.
	Needed(ctx context.Context, target string) (Needs, error)
}

// Needs are the snapshots that plans name which have not ended, by guest and name, and when the oldest of these plans was
// made; zero when there is none.
type Needs struct {
	Snapshots map[[2]string]bool
	Oldest    time.Time
}

// Recorded implements Past.
func (v *view) Recorded(ctx context.Context, id string) (*PlanRecord, error) {
	return v.g.load(ctx, v.principal, id)
}

// Earlier implements Past.
func (v *view) Earlier(ctx context.Context, f PlanFilter) ([]*PlanRecord, error) {
	out, _, err := (&desk{view: v}).List(ctx, f)
	return out, err
}

// Needed implements Past.
func (v *view) Needed(ctx context.Context, target string) (Needs, error) {
	n := Needs{Snapshots: map[[2]string]bool{}}
	err := v.g.c.Store.View(ctx, func(tx Tx) error {
		cursor := ""
		for range maxOpenPages {
			plans, next, err := tx.ListPlans(PlanFilter{States: []PlanState{PlanProposed, PlanApproved, PlanApplying, PlanPaused}, Limit: 200, Cursor: cursor})
			if err != nil {
				return err
			}
			for _, r := range plans {
				n.add(r, target, v.g.now())
			}
			if cursor = next; cursor == "" {
				return nil
			}
		}
		return errors.New("there are too many plans that have not ended")
	})
	if err != nil {
		return Needs{}, fmt.Errorf("look for plans that may need a snapshot: %w", err)
	}
	return n, nil
}

// maxOpenPages bounds how many plans are looked through, in pages of 200.
const maxOpenPages = 50

func (n *Needs) add(r *PlanRecord, target string, now time.Time) {
	if r.State == PlanProposed && !now.Before(r.Plan.Expires) {
		return // it can never be carried out
	}
	for _, s := range r.Plan.Steps {
		if s.Target != target || s.API == nil {
			continue
		}
		if n.Oldest.IsZero() || r.Plan.Created.Before(n.Oldest) {
			n.Oldest = r.Plan.Created
		}
		if name := s.API.Text("snapname"); name != "" {
			n.Snapshots[[2]string{s.API.Text("vmid"), name}] = true
		}
	}
}

// wayBack asks how a step is taken back.
func (g *Gate) wayBack(ctx context.Context, v View, s *Step) {
	if g.c.Keeper != nil && s.API != nil && s.Judgement.Effect != EffectRead {
		s.Undo = g.c.Keeper.Undo(ctx, v, *s)
	}
	if s.Undo.None == "" && s.Undo.How == "" && s.Undo.Call == nil && len(s.Undo.Sheets) == 0 {
		s.Undo.None = "no undo is known"
	}
	s.Undo.None, s.Undo.How = clip(s.Undo.None, 400), clip(s.Undo.How, 600)
}

// maxImage bounds what is kept of one sheet, in bytes.
const maxImage = 256 << 10

// LookAt reads what a sheet shows now.
func LookAt(ctx context.Context, v View, target string, s Sheet) (Image, error) {
	a, err := v.Read(ctx, target, s.Read)
	if err != nil {
		if notThere(err) {
			return Image{}, nil
		}
		return Image{}, fmt.Errorf("read %s: %w", s.Name, err)
	}
	if len(a.Missing) > 0 {
		return Image{}, Fail(ErrUnavailable, "Try again when it answers.", "read %s: the answer is incomplete: %s", s.Name, strings.Join(a.Missing, "; "))
	}
	img, err := s.image(a.Data)
	if err != nil {
		return Image{}, fmt.Errorf("read %s: %w", s.Name, err)
	}
	return img, nil
}

// notThere says whether an error means that the object does not exist.
func notThere(err error) bool {
	var e *Error
	var u *UpstreamError
	switch {
	case errors.As(err, &e):
		return e.Kind == ErrNotFound
	case errors.As(err, &u):
		return u.Kind == ErrNotFound
	}
	return false
}

func (s Sheet) image(data json.RawMessage) (Image, error) {
	var v any
	d := json.NewDecoder(strings.NewReader(string(orNull(data))))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return Image{}, err
	}
	v, _ = pointed(v, s.At)
	rows, list := v.([]any)
	switch {
	case v == nil:
	case s.Form == SheetObject && !list:
		rows = []any{v}
	case !list:
		return Image{}, errors.New("the answer is no list")
	}
	img, size := Image{Rows: []map[string]json.RawMessage{}}, 0
	for _, r := range rows {
		m, ok := r.(map[string]any)
		if !ok {
			return Image{}, errors.New("a row is no object")
		}
		if !(Condition{Where: s.Where}).row(m) {
			continue
		}
		row := map[string]json.RawMessage{}
		for k, val := range m {
			if val == nil || len(s.Fields) > 0 && !slices.Contains(s.Fields, k) {
				continue
			}
			text, err := json.Marshal(val)
			if err != nil {
				return Image{}, err
			}
			row[k] = text
			size += len(k) + len(text)
		}
		img.Rows = append(img.Rows, row)
	}
	if s.Form == SheetObject && len(img.Rows) > 1 {
		return Image{}, fmt.Errorf("%d objects where one was to be", len(img.Rows))
	}
	if size > maxImage {
		return Image{}, fmt.Errorf("it is too large to keep (%d bytes)", size)
	}
	return img, nil
}

// pointed follows a JSON pointer.
func pointed(v any, pointer string) (any, bool) {
	if pointer == "" {
		return v, true
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch x := v.(type) {
		case map[string]any:
			if v = x[part]; v == nil {
				return nil, false
			}
		case []any:
			n := 0
			if _, err := fmt.Sscanf(part, "%d", &n); err != nil || n < 0 || n >= len(x) {
				return nil, false
			}
			v = x[n]
		default:
			return nil, false
		}
	}
	return v, true
}

// lookTime bounds how long the sheets of one step are read.
const lookTime = 30 * time.Second

// images reads all sheets of a step. What cannot be read says why.
func (g *Gate) images(ctx context.Context, who Principal, s Step) (out []Image, unread string) {
	if len(s.Undo.Sheets) == 0 {
		return nil, ""
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	v := g.wholeView(who)
	for _, sheet := range s.Undo.Sheets {
		img, err := LookAt(ctx, v, s.Target, sheet)
		if err != nil {
			img = Image{Unread: clip(g.c.Sealer.Redact(err.Error()), 300)}
			unread = img.Unread
		}
		g.hideIn(s, sheet, img)
		out = append(out, img)
	}
	return out, unread
}

// Withheld stands in an image for a value that is a secret or holds one: it is not kept, so it cannot be set again.
const Withheld = "(secret, not kept)"

// hideIn takes out of an image what the catalogue takes for a secret when it is written.
func (g *Gate) hideIn(s Step, sheet Sheet, img Image) {
	for _, row := range img.Rows {
		for k, raw := range row {
			var text string
			if json.Unmarshal(raw, &text) != nil {
				continue
			}
			for _, op := range []string{sheet.Update, sheet.Create} {
				if op != "" && len(g.c.Catalog.SecretValue(Request{Product: s.API.Product, Operation: op}, k, text)) > 0 {
					row[k] = json.RawMessage(`"` + Withheld + `"`)
				}
			}
		}
	}
}

// after reads what the sheets of a step show now that it has ended, whatever came of it. What was not sent changed nothing.
func (c *carrier) after(i int) []Image {
	r := c.record()
	if len(r.Steps[i].Before) == 0 {
		return nil
	}
	out, _ := c.g.images(context.Background(), r.Plan.Requester, r.Plan.Steps[i])
	return out
}
