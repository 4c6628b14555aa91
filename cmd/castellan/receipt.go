package main

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/tlog"

	"castellan/internal/cli"
	"castellan/internal/gate"
	"castellan/internal/identity"
	"castellan/internal/ledger"
)

// receiptCommand writes the full receipt of a plan: what verifies it stands in it.
func (a *app) receiptCommand() *cobra.Command {
	return &cobra.Command{Use: "receipt PLAN", Short: "Print the full receipt of an ended plan, which audit verify --receipt checks with the public key alone",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usage{Err: errors.New("give one plan id; castellan plans lists them")}
			}
			return nil
		}, RunE: func(cmd *cobra.Command, args []string) error {
			return a.within(cmd.Context(), func(h *house) error {
				r, err := h.gate.Receipt(cmd.Context(), a.person(), args[0])
				if err != nil {
					return err
				}
				return cli.PrintJSON(a.out, r)
			})
		}}
}

// statement is one record that a receipt brings along, with its header read.
type statement struct {
	ledger.Header
	data map[string]any
	note string
}

func (s statement) mark(name string) string {
	text, _ := s.data[name].(string)
	return text
}

// verifyReceipt checks a full receipt with nothing but the ledger's public key: that its records stand in a signed tree,
// that they are about this plan, that its approvals are those that were recorded, that each passkey's signature is good
// and by a credential enrolled before, and that they come to what the plan took. heads are the signed heads that an
// export must contain.
func verifyReceipt(text []byte, key ed25519.PublicKey) (r *gate.Receipt, heads []string, err error) {
	r = new(gate.Receipt)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, nil, fmt.Errorf("read receipt: %w", err)
	}
	records := map[uint64]statement{}
	for _, p := range r.Records {
		s, err := proven(p, key)
		if err != nil {
			return nil, nil, fmt.Errorf("record %d: %w", p.Index, err)
		}
		records[p.Index] = s
		heads = append(heads, p.Checkpoint)
	}
	if r.Ledger == nil || len(r.Records) == 0 {
		return nil, nil, errors.New("the receipt brings no records along; castellan receipt PLAN prints the full one")
	}
	end, ok := records[r.Ledger.Index]
	if !ok || end.Kind != "plan_end" || end.Plan != r.Plan || end.Status != string(r.State) || end.mark("digest") != r.Digest {
		return nil, nil, errors.New("the record of the plan's end is missing, or about something else")
	}
	bare := *r
	bare.Ledger, bare.Approvals, bare.Records = nil, nil, nil
	canonical, err := gate.Canonical(bare)
	if err != nil {
		return nil, nil, err
	}
	if sum := sha256.Sum256(canonical); hex.EncodeToString(sum[:]) != end.mark("receipt") {
		return nil, nil, errors.New("the receipt is not the one that was recorded")
	}
	intended, first := false, r.Ledger.Index
	for index, s := range records {
		if s.Kind == "intent" && s.Plan == r.Plan && s.mark("digest") == r.Digest {
			intended, first = true, min(first, index)
		}
	}
	if !intended {
		return nil, nil, errors.New("the record of the intent is missing")
	}
	best, signers := gate.RungNone, map[string]bool{}
	for i, a := range r.Approvals {
		if err := verifyApproval(r, a, records); err != nil {
			return nil, nil, fmt.Errorf("approval %d: %w", i+1, err)
		}
		if a.Record <= first || a.Record >= r.Ledger.Index {
			return nil, nil, fmt.Errorf("approval %d: it was not given between the plan and its end", i+1)
		}
		best = max(best, a.Rung)
		if a.Rung == gate.RungPasskey && a.Evidence.Passkey != nil {
			signers[a.By.Person] = true
		}
	}
	if len(signers) > 1 {
		best = max(best, gate.RungTwoPasskeys)
	}
	if best < r.Rung {
		return nil, nil, fmt.Errorf("its approvals come to %s, and it took %s", best, r.Rung)
	}
	return r, heads, nil
}

// proven opens a record that stands in a signed tree.
func proven(p *gate.LedgerPosition, key ed25519.PublicKey) (statement, error) {
	if p.Leaf == "" {
		return statement{}, errors.New("its header is withheld: it was removed by retention before the receipt was printed")
	}
	proof := ledger.Proof{Index: int64(p.Index), Size: int64(p.Size), Leaf: tlog.RecordHash([]byte(p.Leaf)), Note: p.Checkpoint}
	for _, text := range p.Proof {
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(b) != len(tlog.Hash{}) {
			return statement{}, errors.New("its proof cannot be read")
		}
		proof.Path = append(proof.Path, tlog.Hash(b))
	}
	if err := proof.Check([]byte(p.Leaf), key); err != nil {
		return statement{}, err
	}
	h, err := ledger.ParseHeader([]byte(p.Leaf))
	if err != nil {
		return statement{}, err
	}
	if h.Tree != ledger.Write || uint64(h.Seq) != p.Index {
		return statement{}, errors.New("its header is that of another record")
	}
	data, err := h.Fields()
	return statement{h, data, p.Checkpoint}, err
}

func verifyApproval(r *gate.Receipt, a gate.Approval, records map[uint64]statement) error {
	said, ok := records[a.Record]
	switch {
	case !ok || said.Kind != "approval" || said.Plan != r.Plan || said.mark("digest") != r.Digest:
		return errors.New("its record is missing, or about something else")
	case a.Plan != r.Plan || a.Digest != r.Digest || said.Actor != a.By.Key() || said.Status != a.Rung.String():
		return errors.New("it is not the one that was recorded")
	case said.mark("evidence") != a.Evidence.Kind || said.mark("mandate") != a.Evidence.Mandate || (said.mark("allow_newer") != "") != a.Evidence.AllowNewer:
		return errors.New("it does not rest on the evidence that was recorded")
	}
	p := a.Evidence.Passkey
	if p == nil {
		if a.Evidence.Kind == "passkey" || a.Rung >= gate.RungPasskey && a.Evidence.Kind != "mandate" {
			return errors.New("the passkey's signature is missing")
		}
		return nil
	}
	digest, err := gate.Digest(p)
	if err != nil {
		return err
	}
	if digest != said.mark("assertion") || p.Proof.Credential != said.mark("credential") {
		return errors.New("the passkey's signature is not the one that was recorded")
	}
	if p.Plan != r.Plan || p.Digest != r.Digest || p.Verdict != a.Evidence.Says() || p.Approver != a.By.Person {
		return errors.New("the passkey signed something else")
	}
	if err := identity.VerifyProof(*p); err != nil {
		return err
	}
	enrolled, ok := records[p.Proof.Enrolled]
	if !ok || enrolled.Kind != "credential" || enrolled.Status != "enrolled" || enrolled.mark("credential") != p.Proof.Credential ||
		enrolled.mark("person") != a.By.Person || p.Proof.Enrolled >= a.Record {
		return errors.New("the passkey was not enrolled for this person before")
	}
	return nil
}

// verifyReceiptFile checks a receipt, and that an export, where one is given, goes on from every head that the receipt's
// records stand in.
func (a *app) verifyReceiptFile(cmd *cobra.Command, file, export, key string, heads []string) error {
	pub, err := publicKey(key)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read receipt: %w", err)
	}
	r, own, err := verifyReceipt(text, pub)
	if err != nil {
		return gate.Fail(gate.ErrDenied, "Do not rely on this receipt. castellan receipt PLAN prints the one that was recorded.", "the receipt does NOT verify: %v", err)
	}
	if export != "" {
		res, err := verifyFile(export, key, append(own, heads...))
		if err != nil {
			return err
		}
		if !res.OK {
			printVerdict(a.out, verdictOf(res))
			return cli.Exit(cli.ExitError)
		}
	}
	if cli.JSON(cmd) {
		return cli.PrintJSON(a.out, map[string]any{"ok": true, "plan": r.Plan, "digest": r.Digest, "state": r.State, "approved_by": r.ApprovedBy, "records": len(r.Records)})
	}
	fmt.Fprintf(a.out, "The receipt is genuine: plan %s, %s, took %s.\n", cli.Safe(r.Plan), cli.Safe(string(r.State)), r.Rung)
	for _, p := range r.Approvals {
		how := p.Evidence.Kind
		if p.Evidence.Passkey != nil {
			how = "passkey " + p.Evidence.Passkey.Proof.Credential[:12] + "…, signature checked"
		}
		fmt.Fprintf(a.out, "Approved by %s at %s (%s).\n", cli.Safe(p.By.Key()), p.Rung, cli.Safe(how))
	}
	if export != "" {
		fmt.Fprintln(a.out, "The export contains every head that the receipt's records stand in.")
	}
	return nil
}
