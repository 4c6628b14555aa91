//go:build linux

package bridge

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"castellan/internal/frame"
)

// nodeWords are the fixed words for the node.
var nodeWords = []string{wordMaintenance, wordDeadMan, wordUpdates, wordUpgrade}

// manage carries out a fixed word for the node.
func (b *Bridge) manage(ctx context.Context, ask frame.Ask, tell func(frame.Tell)) (frame.Tell, error) {
	w := ask.Word
	if !slices.Contains(nodeWords, w.Name) {
		return frame.Tell{}, refuse("", "this bridge has no word %.40q; it has %s, enrol and unenrol", w.Name, strings.Join(nodeWords, ", "))
	}
	if !slices.Contains(b.set.Words, w.Name) {
		return frame.Tell{}, refuse(b.set.hint("words", fmt.Sprintf("add %q", w.Name)), "the word %s is not switched on", w.Name)
	}
	p := ask.Place
	if p.Where != frame.Host {
		return frame.Tell{}, refuse("", "the word %s is for the node", w.Name)
	}
	if _, err := b.prove(p); err != nil {
		return frame.Tell{}, err
	}
	if err := b.rec.write(entryOf(ask, frame.Tell{}).rooted(true)); err != nil {
		return frame.Tell{}, refuse("Look at the file of the setting log on the node.", "nothing is done that cannot be recorded: %v", err)
	}
	if w.Name == wordUpdates { // it only looks: no mark is needed, and no result is kept
		text, err := b.updates(ctx, w.Args)
		return frame.Tell{Ending: frame.Done, Text: text}, err
	}
	h, known, err := b.begin(ask, "", "", time.Minute, true)
	if h == nil {
		return known, err
	}
	last := frame.Tell{Ending: frame.Done}
	switch w.Name {
	case wordMaintenance:
		last.Text, err = b.maintenance(ctx, p.Node, w.Args)
	case wordUpgrade:
		last, err = b.upgrade(ctx, ask, tell)
	default:
		last.Text, err = b.deadMan(ctx, ask)
	}
	if err != nil {
		last = ending(ask.ID, err)
	}
	if last.Running { // it goes on without this bridge, and is looked for by its own marks
		last.ID = ask.ID
		return last, h.f.Close()
	}
	b.finish(h, &last)
	return last, nil
}

// maintenance asks the node's HA manager: the API has no call for it.
func (b *Bridge) maintenance(ctx context.Context, node string, args map[string]string) (string, error) {
	if err := only(args, "mode"); err != nil {
		return "", err
	}
	mode, err := oneOf(args, "mode", "enable", "disable", "status")
	if err != nil {
		return "", err
	}
	path, err := tool(b.set.Paths.HAManager, "ha-manager")
	if err != nil {
		return "", refuse("", "%v", err)
	}
	argv := []string{"crm-command", "node-maintenance", mode, node}
	if mode == "status" {
		argv = []string{"status"}
	}
	out, err := own(ctx, path, argv...)
	if err != nil {
		return "", fmt.Errorf("%s maintenance: %w", mode, err)
	}
	if mode != "status" {
		return strings.TrimSpace("asked the HA manager to " + mode + " maintenance of " + node + ". " + out), nil
	}
	return out, nil
}

// own runs a program of the node's own with fixed arguments, and gives what it printed.
func own(ctx context.Context, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	out := newKeeper(16<<10, false)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = cleanEnv(), "/", out, out, time.Second
	err := cmd.Run()
	o := out.output()
	text := strings.ToValidUTF8(strings.TrimSpace(string(o.Head)+string(o.Tail)), "?")
	if err != nil {
		return text, errors.Join(err, errors.New(text))
	}
	return text, nil
}
