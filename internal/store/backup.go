package store

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
	"castellan/internal/ledger"
)

// A backup is gzip over lines of JSON: a header, one array a row (the table's name, then its columns; bytes in base64),
// and an end with the digest of all lines before it, signed by the ledger's key. It is the same for both databases.

const (
	backupFormat  = "castellan state"
	backupVersion = 1
	maxLine       = 64 << 20
	restoreLimit  = time.Hour
)

type backupHeader struct {
	Format  string    `json:"format"`
	Version int       `json:"version"`
	Schema  int       `json:"schema"`
	Store   string    `json:"store"`
	At      time.Time `json:"at"`
	Head    string    `json:"head"`
}

type backupEnd struct {
	End       bool   `json:"end"`
	Rows      int64  `json:"rows"`
	SHA256    string `json:"sha256"`
	Signature string `json:"signature"` // Ed25519 over the text of signedText
}

func signedText(store, digest string) []byte {
	return []byte("castellan state backup\n" + store + "\n" + digest + "\n")
}

// backed are the tables of a backup with the kinds of their columns: t text, i integer, b bytes, o bytes
// that may be absent.
var backed = []struct{ table, columns, kinds string }{
	{"plans", "id, version, state, requester, operation, effect_digest, created, body", "tittttib"},
	{"locks", "object, plan, since", "tti"},
	{"nonces", "nonce, expires", "ti"},
	{"hits", "bucket, at", "ti"},
	{"sealed", "plan, handle, box", "ttb"},
	{"marks", "name, value", "tt"},
	{"docs", "kind, id, owner, expires, version, body", "tttiib"},
	{"heads", "tree, size, frontier, note, clock", "tibti"},
	{"write_records", recordColumns, "ioboottttttttt"},
	{"read_records", recordColumns, "ioboottttttttt"},
}

// State says what a backup holds, or a restore brought back.
type State struct {
	Store string    `json:"store"`
	At    time.Time `json:"at"`   // when the backup was made
	Size  int64     `json:"size"` // records of the write tree
	Head  string    `json:"head"` // its signed checkpoint
	Rows  int64     `json:"rows"`
	// Recorded says that the backup, or the restore, is in the ledger.
	Recorded bool `json:"recorded"`
	// Closed are the plans that were open and are not any more: what became of them since the backup is not known.
	Closed []string `json:"closed,omitempty"`
}

// Backup writes the whole state to w, as it is at one moment, after recording that it does. A store that cannot be
// written is backed up all the same; the result says that it was not recorded.
func (s *Store) Backup(ctx context.Context, w io.Writer, by gate.Principal) (State, error) {
	out := State{Store: s.id, At: s.clock().UTC()}
	err := s.Update(ctx, func(t gate.Tx) error {
		_, err := t.Append(gate.Record{Kind: "state", Operation: "state_backup", Actor: by.Key(), WayIn: by.WayIn, Status: "ok", Effect: gate.EffectExpose})
		return err
	})
	if err != nil && !errors.Is(err, gate.ErrReadOnlyStore) {
		return out, fmt.Errorf("back up state: %w", err)
	}
	out.Recorded = err == nil
	err = s.db.read(ctx, func(q *session) error {
		version, err := s.db.kind.version(ctx, q)
		if err != nil {
			return err
		}
		at, note, err := s.led.Head(ctx, &rows{ctx: ctx, q: q}, ledger.Write)
		if err != nil {
			return err
		}
		out.Size, out.Head = at.Size, note
		d := newDump(w)
		d.line(backupHeader{backupFormat, backupVersion, version, s.id, out.At, note})
		for _, b := range backed {
			if err := d.table(ctx, q, b.table, b.columns, b.kinds); err != nil {
				return fmt.Errorf("table %s: %w", b.table, err)
			}
		}
		out.Rows = d.rows
		digest := hex.EncodeToString(d.sum.Sum(nil))
		sig, err := s.key.Sign(rand.Reader, signedText(s.id, digest), crypto.Hash(0))
		if err != nil {
			return fmt.Errorf("sign: %w", err)
		}
		d.line(backupEnd{true, d.rows, digest, base64.StdEncoding.EncodeToString(sig)})
		return d.close()
	})
	if err != nil {
		return out, fmt.Errorf("back up state: %w", err)
	}
	return out, nil
}

type dump struct {
	zip  *gzip.Writer
	out  *bufio.Writer
	sum  hash.Hash
	rows int64
	err  error
}

func newDump(w io.Writer) *dump {
	d := &dump{zip: gzip.NewWriter(w), sum: sha256.New()}
	d.out = bufio.NewWriter(d.zip)
	return d
}

func (d *dump) line(v any) {
	if d.err != nil {
		return
	}
	b, err := json.Marshal(v)
	if err != nil {
		d.err = err
		return
	}
	b = append(b, '\n')
	d.sum.Write(b)
	_, d.err = d.out.Write(b)
}

func (d *dump) table(ctx context.Context, q *session, table, columns, kinds string) error {
	return q.each(ctx, func(scan func(...any) error) error {
		values := make([]any, len(kinds))
		for i, k := range kinds {
			switch k {
			case 't':
				values[i] = new(string)
			case 'i':
				values[i] = new(int64)
			default:
				values[i] = new([]byte)
			}
		}
		if err := scan(values...); err != nil {
			return err
		}
		for i, k := range kinds {
			switch b, _ := values[i].(*[]byte); {
			case k == 'o' && *b == nil:
				values[i] = nil
			case k == 'b':
				values[i] = blob(*b)
			}
		}
		d.line(append([]any{table}, values...))
		d.rows++
		return d.err
	}, `SELECT `+columns+` FROM `+table)
}

func (d *dump) close() error {
	return errors.Join(d.err, d.out.Flush(), d.zip.Close())
}

// Restore brings the state of a backup into the empty database of c. The backup must be whole and signed by the key of
// c, and its ledger must verify; else nothing is changed. Plans that were open are closed, since nobody knows what has
// become of them since; approvals and tokens given before the backup are void.
func Restore(ctx context.Context, c Config, r io.Reader, by gate.Principal) (State, error) {
	c.Head, c.Anchors = "", nil
	s, err := Open(ctx, c)
	if err != nil {
		return State{}, fmt.Errorf("restore state: %w", err)
	}
	out, err := s.restore(r, by)
	if err != nil {
		err = fmt.Errorf("restore state: %w; nothing was changed", err)
	}
	return out, errors.Join(err, s.Close())
}

func (s *Store) restore(r io.Reader, by gate.Principal) (State, error) {
	var out State
	zip, err := gzip.NewReader(r)
	if err != nil {
		return out, fmt.Errorf("this is no backup of a state: %w", err)
	}
	in := &undump{lines: bufio.NewReaderSize(zip, 1<<20), sum: sha256.New()}
	err = s.db.writeWithin(restoreLimit, func(ctx context.Context, q *session) error {
		if err := s.empty(ctx, q); err != nil {
			return err
		}
		head, err := in.header()
		if err != nil {
			return err
		}
		version, err := s.db.kind.version(ctx, q)
		if err != nil {
			return err
		}
		if head.Schema > version {
			return fmt.Errorf("the backup has schema version %d, this castellan knows %d: use the version that made it, or a later one", head.Schema, version)
		}
		out = State{Store: head.Store, At: head.At, Head: head.Head}
		for _, table := range []string{"marks", "heads"} {
			if _, err := q.exec(ctx, "DELETE FROM "+table); err != nil {
				return err
			}
		}
		if err := in.tables(ctx, q); err != nil {
			return err
		}
		out.Rows = in.rows
		key, _ := s.key.Public().(ed25519.PublicKey)
		if err := in.finish(head.Store, key); err != nil {
			return err
		}
		return s.accept(ctx, q, &out, key, by)
	})
	return out, err
}

// empty refuses to overwrite anything.
func (s *Store) empty(ctx context.Context, q *session) error {
	var n int64
	if _, err := q.one(ctx, []any{&n}, `SELECT (SELECT count(*) FROM plans) + (SELECT size FROM heads WHERE tree = 'write') + (SELECT size FROM heads WHERE tree = 'read')`); err != nil {
		return err
	}
	if n > 0 {
		return errors.New("there is a state already; move it away, or name a new file or database, and restore there")
	}
	return nil
}

// accept verifies what came in, closes what was open, and records the restore.
func (s *Store) accept(ctx context.Context, q *session, out *State, key ed25519.PublicKey, by gate.Principal) error {
	rows := &rows{ctx: ctx, q: q, clock: s.clock()}
	id, err := getMark(ctx, q, markStore)
	if err != nil || id != out.Store {
		return errors.Join(errors.New("the rows of the backup are of another store than its header says"), err)
	}
	res, err := ledger.Verify(ctx, rows, ledger.Options{Keys: []ed25519.PublicKey{key}, Store: id})
	if err != nil {
		return err
	}
	if !res.OK {
		return fmt.Errorf("the ledger in the backup is broken at record %d: %s", res.Broken.Index, res.Broken.Reason)
	}
	if res.Head != out.Head {
		return errors.New("the ledger in the backup has another head than its header says")
	}
	if out.Closed, err = closeOpen(ctx, q, s.clock()); err != nil {
		return err
	}
	led, err := ledger.New(ledger.Config{Store: id, Signer: s.key, Now: s.clock})
	if err != nil {
		return err
	}
	e, err := entry(gate.Record{Kind: "state", Operation: "state_restore", Actor: by.Key(), WayIn: by.WayIn, Status: "ok", Effect: gate.EffectDestroy,
		Objects: out.Closed, Parts: map[string]string{"reason": "restored the backup of " + out.At.Format(time.RFC3339) + "; its head was\n" + out.Head}}, s.clock())
	if err != nil {
		return err
	}
	receipts, err := led.Append(ctx, rows, ledger.Write, e)
	if err != nil {
		return err
	}
	out.Size, out.Head, out.Recorded = receipts[0].Checkpoint.Size, receipts[0].Note, true
	return nil
}

// closeOpen ends the plans that were open at the time of the backup, with their locks, secrets and approvals.
func closeOpen(ctx context.Context, q *session, now time.Time) ([]string, error) {
	t := &tx{ctx: ctx, q: q, now: now, batch: &batch{}}
	var closed []string
	cursor := ""
	for range 1_000_000 {
		plans, next, err := t.ListPlans(gate.PlanFilter{States: []gate.PlanState{gate.PlanProposed, gate.PlanApproved, gate.PlanApplying, gate.PlanPaused}, Limit: maxPlans, Cursor: cursor})
		if err != nil {
			return nil, err
		}
		for _, p := range plans {
			switch p.State {
			case gate.PlanApplying, gate.PlanPaused:
				p.State, p.Note = gate.PlanUnknown, "the state was restored from a backup; look in Proxmox for what was done since"
			default:
				p.State, p.Note = gate.PlanStale, "the state was restored from a backup; plan anew"
			}
			p.TokenHash, p.AskHash, p.Owner = "", "", ""
			if err := errors.Join(t.UpdatePlan(p), t.DropSealed(p.Plan.ID)); err != nil {
				return nil, err
			}
			closed = append(closed, p.Plan.ID)
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	slices.Sort(closed)
	_, err := q.exec(ctx, "DELETE FROM locks")
	return closed, err
}

// undump reads a backup.
type undump struct {
	lines *bufio.Reader
	sum   hash.Hash
	rows  int64
	last  []byte // the line that ended the tables
}

func (d *undump) next() ([]byte, error) {
	var line []byte
	for {
		part, err := d.lines.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return nil, errors.New("the backup holds a line that is too long")
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil, errors.New("the backup is cut off")
		default:
			return nil, fmt.Errorf("read backup: %w", err)
		}
	}
}

func (d *undump) header() (backupHeader, error) {
	var h backupHeader
	line, err := d.next()
	if err != nil {
		return h, err
	}
	if err := json.Unmarshal(line, &h); err != nil || h.Format != backupFormat {
		return h, errors.New("this is no backup of a state")
	}
	if h.Version != backupVersion {
		return h, fmt.Errorf("the backup has form %d, this castellan knows %d", h.Version, backupVersion)
	}
	d.sum.Write(line)
	return h, nil
}

func (d *undump) tables(ctx context.Context, q *session) error {
	for {
		line, err := d.next()
		if err != nil {
			return err
		}
		if bytes.HasPrefix(line, []byte("{")) {
			d.last = line
			return nil
		}
		d.sum.Write(line)
		d.rows++
		if err := d.row(ctx, q, line); err != nil {
			return fmt.Errorf("row %d: %w", d.rows, err)
		}
	}
}

func (d *undump) row(ctx context.Context, q *session, line []byte) error {
	var cells []json.RawMessage
	var table string
	if err := json.Unmarshal(line, &cells); err != nil || len(cells) == 0 || json.Unmarshal(cells[0], &table) != nil {
		return errors.New("it cannot be read")
	}
	for _, b := range backed {
		if b.table != table {
			continue
		}
		if len(cells)-1 != len(b.kinds) {
			return fmt.Errorf("table %s has %d columns", table, len(cells)-1)
		}
		args := make([]any, len(b.kinds))
		for i, k := range b.kinds {
			var err error
			switch k {
			case 't':
				var v string
				err = json.Unmarshal(cells[i+1], &v)
				args[i] = decode(v)
			case 'i':
				var v int64
				err = json.Unmarshal(cells[i+1], &v)
				args[i] = v
			default:
				var v []byte
				err = json.Unmarshal(cells[i+1], &v)
				if k == 'b' {
					v = blob(v)
				}
				args[i] = v
			}
			if err != nil {
				return fmt.Errorf("table %s, column %d: %w", table, i+1, err)
			}
		}
		_, err := q.exec(ctx, `INSERT INTO `+table+` (`+b.columns+`) VALUES (?`+strings.Repeat(", ?", len(args)-1)+`)`, args...)
		return err
	}
	return fmt.Errorf("there is no table %q", table)
}

// finish checks the end: the digest over all before it, and who signed that.
func (d *undump) finish(store string, key ed25519.PublicKey) error {
	var end backupEnd
	if err := json.Unmarshal(d.last, &end); err != nil || !end.End {
		return errors.New("the end of the backup cannot be read")
	}
	if end.Rows != d.rows || end.SHA256 != hex.EncodeToString(d.sum.Sum(nil)) {
		return errors.New("the backup was changed: its digest is another")
	}
	sig, err := base64.StdEncoding.DecodeString(end.Signature)
	if err != nil || len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, signedText(store, end.SHA256), sig) {
		return errors.New("the backup is not signed by this ledger's key; restore it with the key that belongs to it")
	}
	if _, err := d.lines.ReadByte(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the end of the backup")
	}
	return nil
}
