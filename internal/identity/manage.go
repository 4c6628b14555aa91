package identity

import (
	"slices"

	"castellan/internal/gate"
)

// mayManage lets administrators change accounts, and whoever holds this machine's account.
func (i *Identity) mayManage(tx gate.Tx, who gate.Principal) error {
	no := gate.Fail(gate.ErrDenied, "An administrator does it on the console, or root on the machine.", "only an administrator may change accounts")
	if who.Agent != "" || who.Person == "" {
		return no
	}
	switch who.Strength {
	case gate.StrengthAccount:
		return nil
	case gate.StrengthSession, gate.StrengthPasskey:
		_, a, err := i.account(tx, who.Person)
		if err != nil {
			return err
		}
		if a == nil || !slices.Contains(a.Roles, gate.RoleAdministrator) {
			return no
		}
		if e := a.active(i.now()); e != nil {
			return e
		}
		return nil
	}
	return no
}

// mayRaise guards what gives a person more: nobody raises themselves, and where passkeys are enrolled only a passkey
// makes somebody an approver or administrator, or gives such a person another way to sign in.
func (i *Identity) mayRaise(tx gate.Tx, who gate.Principal, name string, weighty bool) error {
	if who.Strength == gate.StrengthAccount {
		return nil
	}
	if who.Person == name {
		return gate.Fail(gate.ErrDenied, "Another administrator does it, or root on the machine.", "nobody gives more to themselves")
	}
	if !weighty || who.Strength == gate.StrengthPasskey {
		return nil
	}
	ever, err := i.anyCredential(tx)
	if err != nil {
		return err
	}
	if ever {
		return gate.Fail(gate.ErrDenied, "Sign in with a passkey and do it again.", "passkeys are enrolled here, so approvers and administrators are changed only by someone signed in with one")
	}
	return nil
}

// notices fills in what all of them share.
func (i *Identity) notices(tx gate.Tx, ns ...Notice) ([]Notice, error) {
	if len(ns) == 0 {
		return nil, nil
	}
	var approvers []string
	err := i.each(tx, kindAccount, "", func(d *gate.Doc) error {
		a := new(account)
		if i.open(d, a) == nil && a.active(i.now()) == nil && weighty(a.Roles) {
			approvers = append(approvers, a.Name)
		}
		return nil
	})
	for n := range ns {
		ns[n].At, ns[n].Approvers = i.now(), approvers
	}
	return ns, err
}
