package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"castellan/internal/channel"
	"castellan/internal/gate"
	"castellan/internal/patch"
)

// planOf is the plan that a run belongs to.
func planOf(id string) string {
	if i := strings.LastIndexByte(id, '.'); i > 0 {
		return id[:i]
	}
	return id
}

// verify says whether the installation of this plan went well. A guest's report can speak against it; for it speak only what
// castellan has noted and seen itself: what was asked for, that Proxmox says running, that ports are reached as before.
func (c *task) verify(ctx context.Context, e *channel.Entry, limit time.Duration) (gate.RunResult, error) {
	end := time.Now().Add(limit)
	settled := false
	for {
		o, why, unknown, again, err := c.judged(ctx, e)
		if ctx.Err() != nil {
			return gate.RunResult{}, ctx.Err()
		}
		var blind *blindError
		unseen := errors.As(err, &blind)
		if err != nil && !unseen && !passing(err) {
			return gate.RunResult{}, c.told(e, err, false)
		}
		if err != nil {
			why, again = []string{"it cannot be asked: " + bounded(err.Error(), 400)}, true
		}
		if len(why)+len(unknown) == 0 && settled {
			return answer(o, "it went well: what was asked for is installed, the services and ports are as before")
		}
		over := !time.Now().Add(c.r.settle).Before(end)
		if over && unseen { // that is no word against the guest
			return gate.RunResult{}, refused(gate.ErrUnavailable, "Nothing was changed. update_result tells how the installation went.", "%s could not be checked within %s: %v", c.o, limit, blind)
		}
		if len(why) == 0 && len(unknown) > 0 && (!again || over) { // nor is that
			return gate.RunResult{}, refused(gate.ErrUnavailable, "Whether all is well is not known; nothing is said to be worse, so nothing goes back by itself. check_services and update_result tell more; a person looks into the guest, and rollback_guest goes back.",
				"%s could not be compared with what was before: %s", c.o, bounded(strings.Join(unknown, "; "), 1000))
		}
		if len(why) > 0 && (!again || over) {
			why = append(why, unknown...)
			return notWell(o, "it did not go well: "+bounded(strings.Join(why, "; "), 1500))
		}
		settled = len(why)+len(unknown) == 0 // a service may die a moment after it was started
		if err := wait(ctx, c.r.settle); err != nil {
			return gate.RunResult{}, err
		}
	}
}

// judged looks once: what speaks against it, and what is only not known. again says that this may pass: services that are being
// started, an installation under way.
func (c *task) judged(ctx context.Context, e *channel.Entry) (o patch.Outcome, why, unknown []string, again bool, err error) {
	stopped, err := c.notRunning(ctx)
	if err != nil {
		return o, nil, nil, false, err
	}
	if stopped != "" {
		return o, []string{stopped}, nil, true, nil
	}
	o, note, known, err := c.outcome(ctx, e, lookLimit)
	if err != nil {
		return o, nil, nil, false, err
	}
	switch {
	case o.ID == "" || planOf(o.ID) != planOf(c.id):
		return o, []string{fmt.Sprintf("the last installation in the guest is not of this plan (%s)", orNone(bounded(o.ID, 80)))}, nil, false, nil
	case !known:
		return o, nil, []string{"what castellan asked for in it is not known any more"}, false, nil
	case o.State == "running":
		return o, []string{"it still runs"}, nil, true, nil
	}
	after, err := c.house(ctx, e, &note.House)
	if err != nil {
		return o, nil, nil, false, err
	}
	o.After = &after
	o.Services = patch.Compare(*o.Before, after)
	why, unknown = o.Judge()
	return o, why, unknown, o.State == "ended" && len(o.Missing)+len(o.Beyond) == 0 && o.Packages.Clean, nil
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// blindError says that Proxmox could not be asked how the guest stands.
type blindError struct{ cause error }

func (b *blindError) Error() string {
	return "Proxmox does not tell whether it runs: " + bounded(b.cause.Error(), 200)
}
func (b *blindError) Unwrap() error { return b.cause }

// notRunning says why Proxmox does not say that the guest runs; a *blindError where it does not answer.
func (c *task) notRunning(ctx context.Context) (string, error) {
	data, err := driven(c.r.driver, c.target)(ctx, "GET /nodes/{node}/"+string(c.o.where)+"/{vmid}/status/current", map[string]string{"node": c.o.node, "vmid": fmt.Sprint(c.o.vmid)})
	var state struct {
		Status string `json:"status"`
	}
	if err == nil {
		err = json.Unmarshal(data, &state)
	}
	switch {
	case err != nil:
		return "", &blindError{err}
	case state.Status == "":
		return "", &blindError{errors.New("its answer has no status")}
	case state.Status != "running":
		return "Proxmox says that it is " + bounded(state.Status, 20), nil
	}
	return "", nil
}
