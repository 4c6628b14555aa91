//go:build linux

package bridge

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"castellan/internal/frame"
	"castellan/internal/helper"
	"castellan/internal/patch"
)

// The words for castellan's channel into a container.
const (
	wordEnrol   = "enrol"
	wordUnenrol = "unenrol"
)

// channelLimit is how long the script may take: it may have to install an sshd.
const channelLimit = 10 * time.Minute

// channelScript makes the script of a word, for a guest of a family. castellan sends a key, an address and a choice, each of a
// strict form; the text is this program's own.
func channelScript(w *frame.Word, family patch.Family) (string, error) {
	if w.Name == wordUnenrol {
		return helper.Uninstall(), only(w.Args)
	}
	if err := only(w.Args, "public_key", "from", "automatic"); err != nil {
		return "", err
	}
	automatic, err := oneOf(w.Args, "automatic", "keep", "off", "on")
	if err != nil {
		return "", err
	}
	key := w.Args["public_key"]
	if kind, text, ok := strings.Cut(key, " "); !ok || kind != "ssh-ed25519" || len(text) != 68 || strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") != "" {
		return "", refuse("", "public_key is no line ssh-ed25519 AAAA…")
	}
	from, err := netip.ParseAddr(w.Args["from"])
	if err != nil || from.Zone() != "" {
		return "", refuse("", "from is no address")
	}
	script, err := helper.Install(helper.InstallConfig{PublicKey: key, From: from.Unmap().String(), Automatic: automatic, Account: helper.Account, Family: family})
	if err != nil {
		return "", refuse("", "%v", err)
	}
	return script, nil
}

// detected makes the script for the guest that the first look has found.
func detected(w *frame.Word, r *frame.Result) (string, error) {
	i, err := helper.ParseInstalled(slices.Concat(r.Out.Head, r.Out.Tail))
	if err != nil {
		return "", refuse("Look into the guest: it takes a POSIX shell.", "what the guest is cannot be told: %v", err)
	}
	script, err := channelScript(w, i.System.Family)
	if err != nil {
		return "", refuse("castellan does not look after such a guest; nothing was changed.", "the guest is %.80q: %v", i.System.Name, err)
	}
	return script, nil
}

// channel puts castellan's channel into a container, or takes it away.
//
// It needs no lane, in a privileged container neither one of the host: what runs is this program's own text, which changes
// nothing beside the channel; that the word is switched on says that it may.
func (b *Bridge) channel(ctx context.Context, ask frame.Ask, tell func(frame.Tell)) (frame.Tell, error) {
	w := ask.Word
	if !slices.Contains(b.set.Words, wordEnrol) {
		return frame.Tell{}, refuse(b.set.hint("words", fmt.Sprintf("add %q", wordEnrol)), "the word %s is not switched on", wordEnrol)
	}
	if ask.Place.Where != frame.CT {
		return frame.Tell{}, refuse("", "the word %s is for containers", w.Name)
	}
	script, err := channelScript(w, patch.APT) // what it brings is looked at before anything is asked of the guest
	if err != nil {
		return frame.Tell{}, err
	}
	g, err := b.prove(ask.Place)
	if err == nil {
		err = b.enter(ctx, g)
	}
	if err == nil {
		err = g.judgePrivilege()
	}
	if err != nil {
		return frame.Tell{}, err
	}
	leave, err := b.seat()
	if err != nil {
		return frame.Tell{}, err
	}
	defer leave()
	if err := b.rec.write(entryOf(ask, frame.Tell{}).rooted(g.privileged)); err != nil {
		return frame.Tell{}, refuse("Look at the file of the setting log on the node.", "nothing is run that cannot be recorded: %v", err)
	}
	nonce := newNonce()
	h, known, err := b.begin(ask, nonce, groupDir(g, nonce), channelLimit, true)
	if h == nil {
		return known, err
	}
	stop := make(chan string, 1)
	b.mu.Lock()
	b.stops[ask.ID] = stop
	b.mu.Unlock()
	carry := func(text string) frame.Tell {
		act := action{script: text, tries: []attempt{{argv: []string{"sh"}}}}
		act.env(nil, "/root", "root", false)
		run := ask
		run.Run = &frame.Run{Lane: frame.Script, Limit: channelLimit, MaxOutput: frame.MaxOutput}
		return b.carry(ctx, run, g, act, nonce, stop, tell)
	}
	last, found := frame.Tell{}, true
	if w.Name == wordEnrol {
		if last = carry(helper.Detect()); last.Ending == frame.Done {
			script, err = detected(w, last.Result)
		}
		if found = last.Ending == frame.Done && err == nil; err != nil {
			last = ending(ask.ID, err)
		}
	}
	if found {
		last = carry(script)
	}
	b.mu.Lock()
	delete(b.stops, ask.ID)
	b.mu.Unlock()
	b.finish(h, &last)
	b.rec.note(entryOf(ask, last).rooted(g.privileged))
	return last, nil
}
