package identity_test

import (
	"sync"
	"testing"

	"castellan/internal/identity"
)

// together runs f n times at once and counts those that went through.
func together(n int, f func(n int) error) int {
	var wg sync.WaitGroup
	var mu sync.Mutex
	good := 0
	for k := range n {
		wg.Go(func() {
			if f(k) == nil {
				mu.Lock()
				defer mu.Unlock()
				good++
			}
		})
	}
	wg.Wait()
	return good
}

// TestOnceMeansOnce: what is good once is good once, also in several processes at the same moment.
func TestOnceMeansOnce(t *testing.T) {
	r := newRig(t)
	r.account("ann", "administrator")
	r.account("bob", "operator")
	procs := []*identity.Identity{r.Identity, r.another(), r.another()}
	token := r.signIn("ann")
	code, err := r.EnrolmentCode(r.ctx, root, "ann")
	r.ok(err)
	const n = 6
	tickets, answers := make([]string, n), make([][]byte, n)
	keys := make([]*key, n)
	for k := range n { // several ceremonies on one code
		keys[k] = newKey(t, "ES256")
		o, ticket, err := r.EnrolStart(r.ctx, token, code)
		r.ok(err)
		tickets[k], answers[k] = ticket, keys[k].create(o)
	}
	if good := together(n, func(k int) error { return procs[k%3].EnrolFinish(r.ctx, token, tickets[k], answers[k], "x") }); good != 1 {
		t.Errorf("one code enrolled %d passkeys", good)
	}
	list, err := r.Credentials(r.ctx, "ann")
	r.ok(err)
	var k *key
	for _, x := range keys {
		if len(list) == 1 && identity.Fingerprint(x.id, x.cose) == list[0].ID {
			k = x
		}
	}
	if k == nil {
		t.Fatalf("enrolled %v", list)
	}

	o, ticket, err := r.PasskeyStart(r.ctx)
	r.ok(err)
	answer := k.get(o)
	if good := together(n, func(x int) error {
		_, err := procs[x%3].PasskeyFinish(r.ctx, ticket, answer, from("198.51.100."+string(rune('1'+x))))
		return err
	}); good != 1 {
		t.Errorf("one ticket signed in %d times", good)
	}

	// An authenticator that counts: one of several equal answers counts on.
	k.counter = 5
	c := challenge()
	response := k.sign(c)
	if good := together(n, func(x int) error { _, err := procs[x%3].Assertion(r.ctx, "ann", c, response); return err }); good != 1 {
		t.Errorf("one count was taken %d times", good)
	}

	s, err := r.passkeySignIn(k)
	r.ok(err)
	voucher, err := r.vouch(s.Token, k, "bob")
	r.ok(err)
	if good := together(n, func(x int) error { _, err := procs[x%3].Invite(r.ctx, s.Token, voucher, "bob"); return err }); good != 1 {
		t.Errorf("one voucher invited %d times", good)
	}
	voucher, err = r.vouch(s.Token, k, "ann")
	r.ok(err)
	for x := range n {
		keys[x] = newKey(t, "ES256")
		o, ticket, err := r.EnrolStart(r.ctx, s.Token, voucher)
		r.ok(err)
		tickets[x], answers[x] = ticket, keys[x].create(o)
	}
	if good := together(n, func(x int) error { return procs[x%3].EnrolFinish(r.ctx, s.Token, tickets[x], answers[x], "x") }); good != 1 {
		t.Errorf("one voucher enrolled %d passkeys", good)
	}
}

// TestWithoutTheStore: a store that does not answer lets nobody in.
func TestWithoutTheStore(t *testing.T) {
	r := newRig(t)
	r.account("ann", "approver")
	k := r.enrol("ann")
	token := r.signIn("ann")
	r.ok(r.store.Close())
	_, err := r.Password(r.ctx, "ann", secret, remote)
	r.no(err, "does not answer as it should")
	_, err = r.Session(r.ctx, token)
	r.no(err, "does not answer as it should")
	_, err = r.passkeySignIn(k)
	r.no(err, "does not answer as it should")
	c := challenge()
	_, err = r.Assertion(r.ctx, "ann", c, k.sign(c))
	r.no(err, "does not answer as it should")
}
