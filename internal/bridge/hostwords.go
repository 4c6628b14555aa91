//go:build linux

package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"castellan/internal/frame"
	"castellan/internal/hostapt"
	"castellan/internal/patch"
)

// packages are the means by which this bridge looks after the packages of its node.
func (b *Bridge) packages() (*hostapt.Host, *hostapt.Runs, error) {
	dir := filepath.Join(b.state.dir, "upgrades")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make a folder for upgrades: %w", err)
	}
	h, err := hostapt.New(hostapt.Config{Dir: dir, Tool: func(name string) (string, error) { return tool("", name) }})
	if err != nil {
		return nil, nil, err
	}
	c := hostapt.RunsConfig{Dir: dir, Host: h}
	if len(b.program) > 0 {
		c.Admit = append(append([]string{}, b.program...), "admit", "--")
	}
	if at := filepath.Join(b.set.Paths.PVE, "priv", "lock"); exists(at) {
		c.Lock = at
	}
	r, err := hostapt.NewRuns(c)
	return h, r, err
}

const mostReport = 2 << 20

func report(v any) (string, error) {
	text, err := json.Marshal(v)
	if err == nil && len(text) > mostReport {
		err = fmt.Errorf("the report is longer than %d bytes", mostReport)
	}
	if err != nil {
		return "", fmt.Errorf("write report: %w", err)
	}
	return string(text), nil
}

// updates looks at the packages of the node; it installs nothing.
func (b *Bridge) updates(ctx context.Context, args map[string]string) (string, error) {
	if err := only(args, "word", "seconds"); err != nil {
		return "", err
	}
	word, err := oneOf(args, "word", "check", "status", "services", "progress", "result")
	if err != nil {
		return "", err
	}
	limit := 3 * time.Minute
	if text := args["seconds"]; text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 3600 {
			return "", refuse("", "seconds is from 1 to 3600")
		}
		limit = time.Duration(n) * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	host, runs, err := b.packages()
	if err != nil {
		return "", err
	}
	switch word {
	case "services":
		return report(host.Services(ctx))
	case "progress":
		id := runs.Running()
		if id == "" {
			return "nothing is being installed", nil
		}
		text, _ := runs.Log(id)
		if len(text) > 4<<10 {
			text = strings.ToValidUTF8(text[len(text)-4<<10:], "")
		}
		return text, nil
	case "result":
		o, _, err := runs.Outcome(ctx, runs.Last())
		if err != nil {
			return "", err
		}
		return report(o)
	case "status":
		r, err := host.Status(ctx)
		if err != nil {
			return "", err
		}
		r.Running, r.Helper = runs.Running(), b.build
		return report(r)
	}
	if id := runs.Running(); id != "" {
		return "", refuse("Wait for its end.", "the upgrade %s is under way on this node", id)
	}
	done, err := b.state.turn(ctx, "looking")
	if err != nil {
		return "", refuse("Try again.", "another look at the packages of this node is under way: %v", err)
	}
	defer done()
	r, err := host.Look(ctx, true)
	if err != nil {
		return "", err
	}
	r.Running, r.Helper = runs.Running(), b.build
	return report(r)
}

// turn waits until nobody else of this node has the turn.
func (s *state) turn(ctx context.Context, name string) (func(), error) {
	f, err := os.OpenFile(filepath.Join(s.dir, name), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			return func() { f.Close() }, nil
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

const (
	beginLimit = 30 * time.Second // for a run of its own to begin
	lookEvery  = time.Second
)

// upgrade has the node's packages upgraded by a run of its own, and stays to tell how it goes. The run recomputes what apt would
// do and refuses what differs from what is asked for; nothing that castellan says is believed.
func (b *Bridge) upgrade(ctx context.Context, ask frame.Ask, tell func(frame.Tell)) (frame.Tell, error) {
	args := ask.Word.Args
	if err := only(args, "mode", "packages", "newer"); err != nil {
		return frame.Tell{}, err
	}
	if _, err := oneOf(args, "mode", "full"); err != nil {
		return frame.Tell{}, err
	}
	newer, err := oneOf(args, "newer", "", "0", "1")
	if err != nil {
		return frame.Tell{}, err
	}
	_, runs, err := b.packages()
	if err != nil {
		return frame.Tell{}, err
	}
	asked := strings.Split(args["packages"], "\n")
	t, err := patch.ParseTransaction(asked)
	if err != nil {
		return frame.Tell{}, refuse("", "the packages that are asked for cannot be read: %v", err)
	}
	if bad := hostapt.Forbidden(t, "", nil); len(bad) > 0 {
		return frame.Tell{}, refuse("This is refused on every host.", "%s", strings.Join(bad, "; "))
	}
	if err := runs.Prepare(hostapt.Job{ID: ask.ID, Asked: asked, Newer: newer == "1", Since: time.Now().UTC()}); err != nil {
		return frame.Tell{}, refuse("", "%v", err)
	}
	_, err = b.detach(ctx, "castellan-upgrade-"+ask.ID, "patch", ask.ID)
	if err != nil {
		runs.Withdraw(ask.ID)
		return frame.Tell{}, refuse("", "a run of its own could not be started, nothing was begun: %v", err)
	}
	for end := time.Now().Add(beginLimit); !runs.Begun(ask.ID); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) && runs.Withdraw(ask.ID) {
			return frame.Tell{}, refuse("Look at systemctl status on the node.", "the run of its own did not begin within %s; it was taken back", beginLimit)
		}
	}
	tell(frame.Tell{ID: ask.ID, Started: true})
	told := int64(0)
	for {
		o, running, err := runs.Outcome(ctx, ask.ID)
		if err != nil {
			return frame.Tell{}, err
		}
		if !running {
			return upgraded(o)
		}
		if piece, size := runs.News(ask.ID, told); len(piece) > 0 {
			told = size
			tell(frame.Tell{ID: ask.ID, Out: piece})
		}
		select {
		case <-ctx.Done():
			return frame.Tell{Ending: frame.Unknown, Running: true, Reason: "this bridge ends; the upgrade goes on"}, nil
		case <-time.After(lookEvery):
		}
	}
}

func upgraded(o patch.Outcome) (frame.Tell, error) {
	text, err := report(o)
	if err != nil {
		return frame.Tell{}, err
	}
	return frame.Tell{Ending: frame.Done, Text: text}, nil
}

// lookUpgrade says what became of an upgrade; known is false where the id is of none.
func (b *Bridge) lookUpgrade(ctx context.Context, id string) (t frame.Tell, known bool, err error) {
	if !exists(filepath.Join(b.state.dir, "upgrades", "upgrade-"+id)) {
		return t, false, nil
	}
	_, runs, err := b.packages()
	if err != nil {
		return t, true, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	o, running, err := runs.Outcome(ctx, id)
	switch {
	case err != nil:
		return t, true, err
	case running:
		return frame.Tell{Ending: frame.Unknown, Running: true, Reason: "it runs"}, true, nil
	}
	t, err = upgraded(o)
	return t, true, err
}

// Patch does an upgrade of this node that was prepared; it is the run of its own.
func (b *Bridge) Patch(ctx context.Context, id string) error {
	_, runs, err := b.packages()
	if err != nil {
		return err
	}
	o, err := runs.Carry(ctx, id)
	e := entry{ID: id, Verb: "patch", Word: wordUpgrade, Root: true, Ending: string(frame.Done), Reason: short(fmt.Sprintf("%s: %d packages done, %d missing, %d beyond %s", o.State, len(o.Done), len(o.Missing), len(o.Beyond), o.Stale))}
	if err != nil {
		e.Ending, e.Reason = string(frame.Failed), short(err.Error())
	}
	b.rec.note(e)
	return err
}

// Admit is what apt asks just before it changes anything.
func (b *Bridge) Admit(id string, in io.Reader) error {
	_, runs, err := b.packages()
	if err != nil {
		return err
	}
	if err := runs.Admit(id, in); err != nil {
		return errors.Join(errors.New("castellan stops this upgrade before it changes anything"), err)
	}
	return nil
}
