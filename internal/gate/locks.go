package gate

import (
	"context"
	"fmt"
	"time"
)

// isLock says whether a condition is that nothing holds a guest's lock.
func (c Condition) isLock() bool { return c.Rule == RuleAbsent && c.Pointer == "/lock" }

// Patient is a View that says how long a step waits for a guest that a task holds; 0 = it does not.
type Patient interface{ LockWait() time.Duration }

// LockWait is what the settings say.
func (v *view) LockWait() time.Duration { return v.g.c.Policy.Limits().LockWait }

// lockPause is how long is waited between two looks at a lock.
const lockPause = 2 * time.Second

// unlocked waits for a lock to go, as long as the settings let it. What cannot be read any more is not waited for.
func (c *carrier) unlocked(ctx context.Context, v *view, target string, cond Condition) (ok bool, got string, err error) {
	until := c.g.now().Add(c.g.c.Policy.Limits().LockWait)
	for c.g.now().Before(until) {
		timer := time.NewTimer(lockPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false, got, ctx.Err()
		case <-timer.C:
		}
		if ok, got, err = v.holds(ctx, target, cond); ok || err != nil {
			return ok, got, err
		}
	}
	return false, got, nil
}

// lockedBy is the refusal of a step whose guest is locked: with the task that holds the lock, where it can be seen, and
// never with the offer to take the lock away.
func (g *Gate) lockedBy(ctx context.Context, v *view, target string, cond Condition, lock string) *Error {
	finder, ok := g.c.Estate.(interface {
		LockHolder(ctx context.Context, v View, target, vmid string) (holder string, known bool)
	})
	hint := "Wait for the task that holds it (list_tasks), then plan anew; policy.lock_wait lets castellan wait."
	by := "; which task holds it cannot be seen"
	if ok {
		holder, known := finder.LockHolder(ctx, v, target, cond.Read.Params["vmid"])
		switch {
		case holder != "":
			by = ", held by " + holder
			hint = "Wait for that task with task_status and wait, then plan anew; policy.lock_wait lets castellan wait."
		case known:
			by = ", and no running task that would hold it can be seen"
			hint = "Look into list_tasks for the task that died: what it left half done is looked at before anything else."
		}
	}
	return Fail(ErrStale, hint, "no longer so: %s (found: %s)%s", cond.Name, lock, fmt.Sprint(by))
}
