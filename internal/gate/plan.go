package gate

import (
	"encoding/json"
	"maps"
	"time"
)

// Draft is what a planner returns: steps in order, not yet judged. The gate freezes it into a Plan.
type Draft struct {
	Target string       // the configured target that every step without its own uses
	Steps  []Step       // API steps carry requests as the planner made them
	Note   string       // the planner's words, shown as such beside the gate's own sentence
	Diff   []Difference // differences that the plan will make, for showing
	Phrase string       // the guest or object that a literal phrase names, e.g. "101"
	Undoes string       // the plan that this one takes back
	Skip   []string     // what was asked for and is left out, each with its reason
	// Children are the drafts of composed calls; their steps follow the own ones.
	Children []*Draft
	// Parallel lets so many children run at the same time, batch by batch; 0 = one after the other. After StopAfter failed
	// children none begins any more; 0 = they all do.
	Parallel, StopAfter int
	// Batch and Canary are a child's own: batches come one after the other, by their numbers, and where a canary fails, no
	// child that has not begun begins.
	Batch  int
	Canary bool
}

// Difference is one key's difference.
type Difference struct {
	Object string `json:"object"`
	Key    string `json:"key"`
	Old    string `json:"old"`
	New    string `json:"new"`
	Note   string `json:"note,omitempty"`
}

// Step is one exact effect.
type Step struct {
	Number  int         `json:"number"` // 1-based, set when frozen
	Target  string      `json:"target"`
	Site    string      `json:"site,omitempty"`
	API     *Request    `json:"api,omitempty"`
	Wait    Wait        `json:"wait,omitzero"`
	When    When        `json:"when,omitzero"`
	Undo    Undo        `json:"undo"`
	Require []Condition `json:"preconditions,omitempty"`
	Verify  []Condition `json:"verify,omitempty"` // what must be seen afterwards for "done"
	// FreshDigest names the read whose "digest" is sent along, read just before; nil when the call takes none.
	FreshDigest *Read `json:"fresh_digest,omitempty"`
	// Download says what the step is to fetch; nil where the answer is none to keep, or nothing is known of it before.
	Download *Download `json:"download,omitempty"`
	Note     string    `json:"note,omitempty"` // remaining races and the like, in the planner's words
	// BackedUpWithin: the guests that it acts on must have a backup that is no older, when it is sent; 0 = it does not matter.
	BackedUpWithin time.Duration `json:"backed_up_within,omitempty"`
	// Part numbers the child plan that the step came from; a failed step ends its own part only. 0 = the plan itself.
	Part int `json:"part,omitempty"`
	// Batch numbers the parts that may run at the same time, in a plan with a Course.
	Batch int `json:"batch,omitempty"`
	// Set by the gate when frozen.
	Sentence  string    `json:"sentence"`
	Judgement Judgement `json:"judgement"`
}

// WaitKind says what ends a step.
type WaitKind string

// The waits.
const (
	WaitNone   WaitKind = ""
	WaitTask   WaitKind = "task"   // the UPID in the answer ends
	WaitGuest  WaitKind = "guest"  // the guest answers
	WaitBoot   WaitKind = "boot"   // a new boot id is seen
	WaitUntil  WaitKind = "until"  // not before a time
	WaitSoak   WaitKind = "soak"   // a time passes without a failed check
	WaitVerify WaitKind = "verify" // the verify conditions hold, polled until the limit
)

// Wait is how long and for what a step waits. Limit 0 means an hour.
type Wait struct {
	Kind  WaitKind      `json:"kind,omitempty"`
	Limit time.Duration `json:"limit,omitempty"`
	Until time.Time     `json:"until,omitzero"`
}

// When says in which case a step runs; the zero value is always (after the earlier ones succeeded).
type When struct {
	StepFailed  int `json:"step_failed,omitempty"`
	CheckFailed int `json:"check_failed,omitempty"`
}

// NodeOf is a parameter value of a Read: the node where the guest of this vmid is at that moment.
func NodeOf(vmid string) string { return nodeOf + vmid }

const nodeOf = "@node_of:"

// Read is a catalogued read. A parameter made by NodeOf is resolved when the read is sent.
type Read struct {
	Operation string            `json:"operation"` // "GET /nodes/{node}/qemu/{vmid}/config"
	Params    map[string]string `json:"params,omitempty"`
}

func (r Read) same(o Read) bool { return r.Operation == o.Operation && maps.Equal(r.Params, o.Params) }

// Condition is one declared field that a step relies on. It is read anew, uncached, just before the step.
type Condition struct {
	Name string `json:"name"` // in words, for the reader: "VM 101 is running"
	Read Read   `json:"read"`
	// Pointer leads to the value in the answer's data (RFC 6901). For a list, Where picks the rows first and Pointer
	// leads into the first row kept, in the order of the answer.
	Pointer string `json:"pointer,omitempty"`
	// Key picks one key of a property string at Pointer, as PropertyValue does; empty = the whole value.
	Key    string              `json:"key,omitempty"`
	Where  map[string]string   `json:"where,omitempty"`  // keep only rows with these texts; a value "a|b" takes either
	Except map[string][]string `json:"except,omitempty"` // and drop those of them that have one of these texts
	Since  time.Time           `json:"since,omitzero"`   // keep only rows whose starttime is later
	Rule   Rule                `json:"rule"`
	Value  json.RawMessage     `json:"value,omitempty"` // for equals and differs; compared as normalised text
	// Lines are what RuleSame compares: see Keep. Of each object only Fields count where there are any; Ordered: rows in
	// another order are others. Where then leads to the one object that it fits.
	Lines   []string `json:"lines,omitempty"`
	Fields  []string `json:"fields,omitempty"`
	Ordered bool     `json:"ordered,omitempty"`
	// Until are the earlier steps of the plan that change what this is about: it counts as long as none of them was sent.
	Until []int `json:"until,omitempty"`
	// Identity marks conditions that tell the object from another of the same name.
	Identity bool `json:"identity,omitempty"`
	// Soft marks conditions of Verify that fail nothing: where one does not hold, the step is done and its outcome
	// says so as a warning ("not yet in force: memory is pending until VM 101 stops"), in the words of Else.
	Soft bool   `json:"soft,omitempty"`
	Else string `json:"else,omitempty"`
}

// Rule is how a Condition compares.
type Rule string

// The rules.
const (
	RuleEquals  Rule = "equals"  // the value is there and equal
	RuleDiffers Rule = "differs" // the value is absent or different
	RuleAbsent  Rule = "absent"  // no such value or row; a "does not exist" answer counts as absent
	RulePresent Rule = "present" // a value or row is there
	RuleSame    Rule = "same"    // an object has the settings, or a list the rows, that it had; what does not exist has none
)

// Plan is a frozen draft. Everything in it is covered by its digests.
type Plan struct {
	ID        string          `json:"id"`
	Operation string          `json:"operation"`
	Args      json.RawMessage `json:"args"` // as normalised, secrets replaced by handles
	Requester Principal       `json:"requester"`
	Reason    string          `json:"reason,omitempty"`
	Created   time.Time       `json:"created"`
	Expires   time.Time       `json:"expires"`
	Sentence  string          `json:"sentence"` // rendered by the gate from the frozen steps
	Steps     []Step          `json:"steps"`
	Course    *Course         `json:"course,omitempty"` // of a plan whose parts run side by side
	Diff      []Difference    `json:"diff,omitempty"`
	Skip      []string        `json:"skip,omitempty"`
	Note      string          `json:"note,omitempty"`
	Facts     Facts           `json:"facts"`
	Decision  Decision        `json:"decision"`
	Phrase    string          `json:"phrase,omitempty"` // the literal phrase of rung phrase
	Undoes    string          `json:"undoes,omitempty"` // the plan that this one takes back
	// Outside says who may have written the free text that the plan shows: old values, and what its steps rely on.
	Outside      []string `json:"outside,omitempty"`
	Parent       string   `json:"parent,omitempty"`
	Children     []string `json:"children,omitempty"`
	Catalogue    string   `json:"catalogue"`     // version of the catalogue
	EffectDigest string   `json:"effect_digest"` // hex SHA-256: sites, steps, preconditions, catalogue
	Digest       string   `json:"digest"`        // hex SHA-256: effect digest, id, requester, expiry, policy set
}

// Facts are computed by the gate from principal, plan and estate.
type Facts struct {
	Effect       Effect        `json:"effect"`
	Classes      []Class       `json:"classes,omitempty"`
	Kinds        []Kind        `json:"kinds"`
	Objects      []ObjectFacts `json:"objects,omitempty"`
	Reversible   string        `json:"reversible"` // "yes", "partly" or "no"
	UndoNote     string        `json:"undo_note,omitempty"`
	Governs      []string      `json:"governs,omitempty"` // why this reaches what castellan itself depends on
	Self         bool          `json:"touches_castellan,omitempty"`
	UndoPoints   []string      `json:"undo_points,omitempty"` // snapshots that are taken first: "101/castellan_undo_…"
	Tainted      bool          `json:"tainted,omitempty"`
	Unidentified []string      `json:"unidentified,omitempty"` // objects with nothing to tell them from a later one
	Reach        Reach         `json:"reach,omitzero"`         // what is hit beyond what the requests name
}

// ObjectFacts is what policy judges of one touched object.
type ObjectFacts struct {
	Object Object   `json:"object"`
	Use    Use      `json:"use"`
	Params []string `json:"params,omitempty"` // by which parameters
	Name   string   `json:"name,omitempty"`
	Tags   []string `json:"tags,omitempty"`
	Pools  []string `json:"pools,omitempty"`
	// Reserved are those of the tags that the site lets nobody set but who may change the site: only they count. Ignored
	// would grant scope if they were reserved.
	Reserved []string `json:"reserved_tags,omitempty"`
	Ignored  []string `json:"ignored_tags,omitempty"`
	Known    bool     `json:"known"` // false: not found, or not readable; policy takes the worst
	// BackedUp is when the newest backup was made that surely is of this guest, or of the guest whose volume this is. It is
	// asked for where a step destroys something; zero = never, or not known: policy takes the worst.
	BackedUp time.Time `json:"backed_up,omitzero"`
}

// Decision is the policy's answer to a call or plan.
type Decision struct {
	Verdict  Verdict  `json:"verdict"`
	Rung     Rung     `json:"rung"`               // for needs: the lowest rung at which it and every higher one allow
	Asked    Rung     `json:"asked,omitempty"`    // the rung before a stand-in took its place
	Policies []string `json:"policies,omitempty"` // ids that determined it, sorted
	Set      string   `json:"policy_set"`         // digest of the policy set
	Reason   string   `json:"reason,omitempty"`   // which setting says so, and who may change it
	Hint     string   `json:"hint,omitempty"`
}

// Verdict is allow, needs or deny.
type Verdict string

// The verdicts; the zero value denies.
const (
	VerdictDeny  Verdict = ""
	VerdictNeeds Verdict = "needs"
	VerdictAllow Verdict = "allow"
)

// PlanState is where a plan is on its way.
type PlanState string

// The states. Moves between them are one compare-and-swap each.
const (
	PlanProposed  PlanState = "proposed"
	PlanApproved  PlanState = "approved"
	PlanApplying  PlanState = "applying"
	PlanPaused    PlanState = "paused"
	PlanDone      PlanState = "done"
	PlanFailed    PlanState = "failed"
	PlanUnknown   PlanState = "unknown"
	PlanDenied    PlanState = "denied"
	PlanExpired   PlanState = "expired"
	PlanWithdrawn PlanState = "withdrawn"
	PlanStale     PlanState = "stale"
)

// Ended says whether nothing more can happen to the plan.
func (s PlanState) Ended() bool {
	switch s {
	case PlanProposed, PlanApproved, PlanApplying, PlanPaused:
		return false
	}
	return true
}

// StepState is where a step is on its way.
type StepState string

// The states of a step. Started is recorded before the first byte leaves.
const (
	StepPending StepState = "pending"
	StepStarted StepState = "started"
	StepWaiting StepState = "waiting" // answered; its task or check is waited for
	StepDone    StepState = "done"
	StepFailed  StepState = "failed"
	StepUnknown StepState = "unknown"
	StepSkipped StepState = "skipped"
)

// StepRecord is what happened to one step so far.
type StepRecord struct {
	State    StepState       `json:"state"`
	Resolved *Request        `json:"resolved,omitempty"` // as sent, references resolved, secrets as handles
	Address  string          `json:"address,omitempty"`  // the address that took the write
	Started  time.Time       `json:"started,omitzero"`
	Ended    time.Time       `json:"ended,omitzero"`
	UPID     string          `json:"upid,omitempty"`
	Answer   json.RawMessage `json:"answer,omitempty"` // bounded, secret fields removed; of a run its RunResult
	Told     bool            `json:"told,omitempty"`   // the end of a run was told, whether or not the answer is small enough to be kept
	Saved    *Saved          `json:"saved,omitempty"`  // of a download
	Result   string          `json:"result,omitempty"` // exit status or the error, in one line
	Warnings string          `json:"warnings,omitempty"`
	Log      []string        `json:"log,omitempty"` // the end of the task log when it failed
	Resent   bool            `json:"resent,omitempty"`
	// Before and After are what the sheets of the step's undo showed just before it was sent and when it had ended.
	Before []Image `json:"before,omitempty"`
	After  []Image `json:"after,omitempty"`
}

// PlanRecord is a plan with what has happened to it. The store keeps it; Version moves with each change.
type PlanRecord struct {
	Plan      Plan         `json:"plan"`
	State     PlanState    `json:"state"`
	Version   int64        `json:"-"`
	Steps     []StepRecord `json:"steps"`
	Approvals []Approval   `json:"approvals,omitempty"`
	Owner     string       `json:"owner,omitempty"` // the process that applies it
	Heartbeat time.Time    `json:"heartbeat,omitzero"`
	TokenHash string       `json:"token_hash,omitempty"` // of the open one-use token of rung restated and phrase
	AskHash   string       `json:"ask_hash,omitempty"`   // of the open one-use nonce of a dialog
	Note      string       `json:"note,omitempty"`       // why it ended as it did
	Applier   Principal    `json:"applier,omitzero"`
	Receipt   *Receipt     `json:"receipt,omitempty"`
	Intent    uint64       `json:"intent"`        // ledger index of the intent
	End       uint64       `json:"end,omitempty"` // ledger index of the record of its end
	// Seal keeps the row from being written by whoever can write the database.
	Seal []byte `json:"seal,omitempty"`
}

// Approval is who approved which plan, how strongly, until when.
type Approval struct {
	Plan     string    `json:"plan"`
	Digest   string    `json:"digest"`
	Rung     Rung      `json:"rung"`
	By       Principal `json:"by"`
	At       time.Time `json:"at"`
	Until    time.Time `json:"until"`
	Evidence Evidence  `json:"evidence"`
	Stands   bool      `json:"stands_in,omitempty"` // stands in for a rung that this installation does not have
	Record   uint64    `json:"record"`              // its index in the write tree
	// Seal keeps the approval from being written by whoever can write the database.
	Seal []byte `json:"seal,omitempty"`
}

// Evidence is what an approval rests on.
type Evidence struct {
	Kind     string     `json:"kind"` // "none", "restated", "phrase", "dialog", "terminal", "consent_file", "mandate", "session", "passkey"
	Sentence string     `json:"sentence,omitempty"`
	Phrase   string     `json:"phrase,omitempty"`
	Nonce    string     `json:"nonce,omitempty"`
	Passkey  *Assertion `json:"passkey,omitempty"` // what a passkey signed, with all that verifies it
	Mandate  string     `json:"mandate,omitempty"`
	// AllowNewer: newer versions of what the plan installs may be taken, see SaysApproveNewer. Only a person's approval and a
	// mandate carry it.
	AllowNewer bool `json:"allow_newer,omitempty"`
	// Session is the token of a person's sign-in, Ticket and Response what came of a Challenge. None of them is kept.
	Session  string          `json:"-"`
	IP       string          `json:"-"` // where it came from, for the record
	Ticket   string          `json:"-"`
	Response json.RawMessage `json:"-"`

	looked *guestsNow // what a look at the guests of the mandate showed
}

// Proof is what is kept of a WebAuthn assertion: enough to verify it with nothing else.
type Proof struct {
	Credential        string `json:"credential"` // fingerprint: hex SHA-256 over id and public key of the credential
	CredentialID      []byte `json:"credential_id"`
	PublicKey         []byte `json:"public_key"` // COSE
	Enrolled          uint64 `json:"enrolled"`   // index of the enrolment in the write tree
	Origin            string `json:"origin"`
	AuthenticatorData []byte `json:"authenticator_data"`
	ClientData        []byte `json:"client_data"`
	Signature         []byte `json:"signature"`
}

// Assertion is a passkey's signature with the parts of its challenge, see ChallengeBytes.
type Assertion struct {
	Purpose  string `json:"purpose"`
	Verdict  string `json:"verdict"` // "approve" or "deny"
	Plan     string `json:"plan"`
	Digest   string `json:"digest"`
	Approver string `json:"approver"`
	Random   []byte `json:"random"` // 32 bytes
	Proof    Proof  `json:"proof"`
}

// Mandate is a person's approval of a bounded class of calls. Each run still freezes its own plan, is proven to be
// contained, and uses up the count. It never covers effect destroy, nor what governs.
type Mandate struct {
	ID  string    `json:"id"`
	By  Principal `json:"by"`  // who gave it
	For string    `json:"for"` // Principal.Key of who may use it
	// Operations by name, and Objects that may be acted on: "guest/101", "node/pve1", "pool:web", "tag:dev", each on the
	// Targets. Nothing else is contained.
	Operations []string `json:"operations"`
	Targets    []string `json:"targets"`
	Objects    []string `json:"objects"`
	// Guests has for each guest among the objects what tells it from a later one of its number: see Estate.Lasting. ByNumber:
	// the number alone counts, whoever bears it.
	Guests   map[string][]Condition `json:"known_guests,omitempty"`
	ByNumber bool                   `json:"by_number,omitempty"`
	// Args are the values that an argument may have, as JSON text; "*" is any. Arguments that only select target and
	// guests need no entry; any other that is not listed is not contained.
	Args  map[string][]string `json:"args,omitempty"`
	Count int                 `json:"count"`
	// Windows are the times outside of which it covers nothing, see ParseWindow; none = always. Schedule is called once in each.
	Windows  []string  `json:"windows,omitempty"`
	Schedule *Schedule `json:"schedule,omitempty"`
	From     time.Time `json:"from"`
	Until    time.Time `json:"until"`
	// AllowNewer lets newer versions of what its plans install be taken, as an approver of each could.
	AllowNewer bool         `json:"allow_newer,omitempty"`
	Rung       Rung         `json:"rung"` // what it was approved at: it covers plans that need no more
	Note       string       `json:"note,omitempty"`
	Given      time.Time    `json:"given"`
	Record     uint64       `json:"record"`
	Uses       []MandateUse `json:"uses,omitempty"`
	Revoked    string       `json:"revoked,omitempty"` // by whom and when
	Passkey    *Assertion   `json:"passkey,omitempty"`

	looked *guestsNow // what a look at its guests showed; nil: none was made, and no guest counts by its number
}

// MandateUse is one plan that a mandate approved.
type MandateUse struct {
	Plan string    `json:"plan"`
	At   time.Time `json:"at"`
}

// Receipt says what became of a plan; signed by the ledger's key.
type Receipt struct {
	Plan         string          `json:"plan"`
	EffectDigest string          `json:"effect_digest"`
	Digest       string          `json:"digest"`
	State        PlanState       `json:"state"`
	Rung         Rung            `json:"rung"`
	ApprovedBy   []string        `json:"approved_by,omitempty"`
	Steps        []StepOutcome   `json:"steps"`
	Undo         []string        `json:"undo,omitempty"`
	UndoWith     string          `json:"undo_with,omitempty"`   // what takes back what can be
	UndoPoints   []string        `json:"undo_points,omitempty"` // snapshots that were taken first
	Hits         []string        `json:"hits,omitempty"`        // what it was said to hit beyond what it names
	Ledger       *LedgerPosition `json:"ledger,omitempty"`      // of the record of the plan's end, which holds this receipt's hash
	// Approvals and Records are in the full receipt only (Gate.Receipt): all that is needed to verify it with the public
	// key and nothing else.
	Approvals []Approval        `json:"approvals,omitempty"`
	Records   []*LedgerPosition `json:"records,omitempty"`
}

// StepOutcome is one line of a receipt.
type StepOutcome struct {
	Number   int       `json:"number"`
	Sentence string    `json:"sentence"`
	State    StepState `json:"state"`
	Result   string    `json:"result,omitempty"`
	UPID     string    `json:"upid,omitempty"`
	Warnings string    `json:"warnings,omitempty"`
	Log      []string  `json:"log,omitempty"`
}

// LedgerPosition is where a record lies, with its inclusion proof.
type LedgerPosition struct {
	Index      uint64   `json:"index"`
	Size       uint64   `json:"size"`
	Root       string   `json:"root,omitempty"`
	Proof      []string `json:"proof,omitempty"`
	Checkpoint string   `json:"checkpoint,omitempty"`
	Leaf       string   `json:"leaf,omitempty"` // the record's header, whose hash the proof leads to the root
}

// PlanView is how a plan is shown to callers.
type PlanView struct {
	ID        string        `json:"id"`
	Digest    string        `json:"digest"`
	State     PlanState     `json:"state"`
	Sentence  string        `json:"sentence"`
	Newer     string        `json:"newer_versions,omitempty"` // of a plan that installs packages: whether exactly these versions
	Order     []string      `json:"order,omitempty"`          // in which its parts are carried out, and what ends that
	Steps     []StepView    `json:"steps"`
	Diff      []Difference  `json:"diff,omitempty"`
	Skip      []string      `json:"skipped,omitempty"`
	Effect    Effect        `json:"effect"`
	Classes   []Class       `json:"classes,omitempty"`
	Touches   []ObjectFacts `json:"touches,omitempty"`
	Undo      string        `json:"undo"`
	Undoes    string        `json:"undoes,omitempty"`
	UndoPoint []string      `json:"undo_points,omitempty"`
	Outside   []string      `json:"outside,omitempty"` // who may have written the free text in it
	Rung      Rung          `json:"approval"`
	Asked     Rung          `json:"approval_asked,omitempty"`
	Why       string        `json:"why,omitempty"`
	Phrase    string        `json:"phrase,omitempty"`
	Token     string        `json:"token,omitempty"` // one use, only in the answer that made or reopened it
	Expires   time.Time     `json:"expires"`
	Note      string        `json:"note,omitempty"` // words of the planner
	Reason    string        `json:"reason,omitempty"`
	Ended     string        `json:"ended,omitempty"` // why it ended as it did
	Requester string        `json:"requester"`
	Approvals []string      `json:"approvals,omitempty"`
	URL       string        `json:"url,omitempty"` // where a person approves it
	// Hits are what it would hit beyond what it names, the gravest first; Unread what could not be read for that.
	Hits   []HitView `json:"hits,omitempty"`
	Unread []string  `json:"unread,omitempty"`
}

// HitView is how a hit is shown.
type HitView struct {
	Weight  Weight `json:"weight"`
	Class   string `json:"class"`
	Object  string `json:"object,omitempty"`
	Text    string `json:"text"`
	Unknown bool   `json:"unknown,omitempty"`
	Blocks  bool   `json:"blocks,omitempty"` // as things stand Proxmox refuses the step for it
}

// StepView is how a step is shown: the exact request, secrets and references as such.
type StepView struct {
	Number   int       `json:"number"`
	Part     int       `json:"part,omitempty"` // where parts run side by side
	Sentence string    `json:"sentence"`
	Request  string    `json:"request,omitempty"`
	Requires []string  `json:"requires,omitempty"`
	Undo     string    `json:"undo"`
	Runs     []string  `json:"runs,omitempty"` // commands that the caller chose, each with how dangerous it looks and why
	State    StepState `json:"state,omitempty"`
	Result   string    `json:"result,omitempty"`
	UPID     string    `json:"upid,omitempty"`
	Warnings string    `json:"warnings,omitempty"`
	Log      []string  `json:"log,omitempty"`
	Note     string    `json:"note,omitempty"`
	// Output is what a run gave: text of programs on the other side.
	Output *RunResult `json:"output,omitempty"`
	Saved  *Saved     `json:"saved,omitempty"` // the file that it fetched
}
