package identity

import (
	"fmt"
	"math"
	"net/netip"
	"time"

	"castellan/internal/gate"
)

// Locked says that too many attempts failed. Nothing was checked.
type Locked struct {
	RetryAfter time.Duration // at least a second
	What       string        // "this account" or "this address"
}

func (l *Locked) Error() string {
	return fmt.Sprintf("too many sign-ins failed for %s; it is locked for another %s", l.What, l.RetryAfter)
}

// Unwrap gives the same as an error of the gate.
func (l *Locked) Unwrap() error {
	return gate.Fail(gate.ErrDenied, "Wait, or sign in with a passkey.", "%s", l.Error())
}

// bucket is one count of failures.
type bucket struct{ id, what string }

// accountBucket counts failures for a name, whether or not it exists. Passkeys have a bucket of their own: strangers who
// lock the password of an account do not lock its passkey.
func accountBucket(way, name string) bucket {
	return bucket{"account/" + way + "/" + name, "this account"}
}

// addressBucket counts failures from an address; of IPv6 from its network, since one machine has all of that.
func addressBucket(way string, ip netip.Addr) bucket {
	ip = ip.Unmap().WithZone("")
	text := ip.String()
	if ip.Is6() {
		if p, err := ip.Prefix(64); err == nil {
			text = p.String()
		}
	}
	return bucket{"address/" + way + "/" + text, "this address"}
}

// lock is kept for a bucket: until when it is locked, and since when failures count.
type lock struct {
	Until   time.Time `json:"until,omitzero"`
	Cleared time.Time `json:"cleared,omitzero"`
}

// locked says whether one of the buckets is locked.
func (i *Identity) locked(tx gate.Tx, buckets ...bucket) (*Locked, error) {
	var out *Locked
	now := i.now()
	for _, b := range buckets {
		var l lock
		if _, err := i.get(tx, kindLock, b.id, &l); err != nil {
			return nil, err
		}
		if left := l.Until.Sub(now); left > 0 && (out == nil || left > out.RetryAfter) {
			out = &Locked{RetryAfter: left, What: b.what}
		}
	}
	if out != nil {
		out.RetryAfter = time.Duration(math.Ceil(out.RetryAfter.Seconds())) * time.Second
	}
	return out, nil
}

// failed counts a failure in each bucket and locks those that have enough; it returns those that it locked.
func (i *Identity) failed(tx gate.Tx, buckets ...bucket) ([]bucket, error) {
	now, back := i.now(), time.Duration(i.set.LockFor)
	var out []bucket
	for _, b := range buckets {
		if err := tx.Hit("signin/"+b.id, now); err != nil {
			return nil, err
		}
		var l lock
		d, err := i.get(tx, kindLock, b.id, &l)
		if err != nil {
			return nil, err
		}
		since := now.Add(-back)
		if l.Cleared.After(since) {
			since = l.Cleared
		}
		n, err := tx.Count("signin/"+b.id, since)
		if err != nil {
			return nil, err
		}
		if n < i.set.LockAfter {
			continue
		}
		// What led to this lock does not count towards the next.
		l.Until, l.Cleared = now.Add(back), now
		if err := i.putLock(tx, b, d, l, l.Until); err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// clear forgets the failures of a bucket after a success.
func (i *Identity) clear(tx gate.Tx, b bucket) error {
	var l lock
	d, err := i.get(tx, kindLock, b.id, &l)
	if err != nil {
		return err
	}
	now, back := i.now(), time.Duration(i.set.LockFor)
	since := now.Add(-back)
	if l.Cleared.After(since) {
		since = l.Cleared
	}
	if n, err := tx.Count("signin/"+b.id, since); err != nil || n == 0 {
		return err
	}
	return i.putLock(tx, b, d, lock{Cleared: now}, now.Add(back))
}

func (i *Identity) putLock(tx gate.Tx, b bucket, d *gate.Doc, l lock, expires time.Time) error {
	if d == nil {
		d = &gate.Doc{Kind: kindLock, ID: b.id}
		if err := tx.DropDoc(kindLock, b.id); err != nil { // one that has expired by this clock may still be there
			return err
		}
	}
	d.Expires = expires
	return i.put(tx, d, l)
}
