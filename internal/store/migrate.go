package store

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

//go:embed schema
var schemaFiles embed.FS

// migration is one numbered step of the schema. What has shipped is never edited; a change is a new file.
type migration struct {
	number int
	file   string
	text   string
}

func migrations(folder string) ([]migration, error) {
	entries, err := fs.ReadDir(schemaFiles, folder)
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	var out []migration
	for i, e := range entries { // sorted by name
		number, _, _ := strings.Cut(e.Name(), "_")
		n, err := strconv.Atoi(number)
		if err != nil || n != i+1 {
			return nil, fmt.Errorf("read schema: %s is not number %d", e.Name(), i+1)
		}
		text, err := fs.ReadFile(schemaFiles, folder+"/"+e.Name())
		if err != nil {
			return nil, fmt.Errorf("read schema: %w", err)
		}
		out = append(out, migration{n, e.Name(), string(text)})
	}
	return out, nil
}

// Marks that the store itself keeps.
const (
	markStore = "store/id"
	markProbe = "store/probe"
)

// migrate brings the schema up to date, each step in a transaction of its own. A second process waits, and finds
// the step done.
func (d *database) migrate(ctx context.Context) error {
	steps, err := migrations(d.kind.schema())
	if err != nil {
		return err
	}
	have, err := d.schemaVersion(ctx)
	if err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	if have == 0 {
		if err := d.first(ctx); err != nil {
			return fmt.Errorf("prepare the database: %w", err)
		}
	}
	for _, m := range steps {
		if m.number <= have {
			continue
		}
		if err := d.step(m); err != nil {
			return fmt.Errorf("bring the schema to version %d: %w", m.number, err)
		}
	}
	if have > len(steps) {
		return fmt.Errorf("the store has schema version %d, this castellan knows %d: a newer one has written it. Use that version or a later one; nothing was changed", have, len(steps))
	}
	return nil
}

func (d *database) schemaVersion(ctx context.Context) (int, error) {
	var n int
	err := d.read(ctx, func(q *session) error {
		var err error
		n, err = d.kind.version(ctx, q)
		return err
	})
	return n, err
}

func (d *database) first(ctx context.Context) error {
	q, err := d.session(ctx)
	if err != nil {
		return err
	}
	defer q.close()
	return d.kind.prepare(ctx, q)
}

func (d *database) step(m migration) error {
	return d.write(func(ctx context.Context, q *session) error {
		if err := d.kind.lockSchema(ctx, q); err != nil {
			return err
		}
		have, err := d.kind.version(ctx, q)
		if err != nil || have >= m.number {
			return err
		}
		if have != m.number-1 {
			return fmt.Errorf("the schema is at version %d", have)
		}
		if err := q.run(ctx, m.text); err != nil {
			return fmt.Errorf("%s: %w", m.file, err)
		}
		if m.number == 1 {
			id := make([]byte, 8)
			rand.Read(id)
			if err := setMark(ctx, q, markStore, hex.EncodeToString(id)); err != nil {
				return err
			}
		}
		return d.kind.setVersion(ctx, q, m.number)
	})
}
