package gate

import (
	"context"
	"encoding/json"
	"time"
)

// View is what an operation gets: reads of catalogued operations with effect read, scoped to what the call may see.
type View interface {
	// Read asks target (empty = the call's only one) and returns the answer's data. Secret fields are gone.
	Read(ctx context.Context, target string, r Read) (Answer, error)
	// Run looks with a probe: a catalogued run ("RUN ...") whose effect is read. A text made by NodeOf is resolved. What
	// comes back is text of programs on the other side.
	Run(ctx context.Context, target, operation string, params map[string]any) (RunResult, error)
	// Plan asks another operation for its draft, as a child of this one.
	Plan(ctx context.Context, operation string, args json.RawMessage) (*Draft, error)
	// Query asks another operation for its answer, under the same scope.
	Query(ctx context.Context, operation string, args json.RawMessage) (json.RawMessage, error)
	// Sees says whether an object is within the caller's scope; for filtering rows.
	Sees(ctx context.Context, target string, o ObjectFacts) bool
	// Scoped says whether the caller's scope is limited at all.
	Scoped() bool
	Target(name string) (TargetInfo, error) // empty name: the only one, else an error naming the choices
	Targets() []TargetInfo
	Principal() Principal
	Now() time.Time
}

// Answer is what a read returned.
type Answer struct {
	Data      json.RawMessage            // the "data" of the envelope; null when empty
	Siblings  map[string]json.RawMessage // "total", "changes"
	Missing   []string                   // what could not be asked and why: the answer is partial
	Untrusted bool                       // holds free text of outsiders
	Address   string                     // which address answered
	Saved     *Saved                     // the answer was a file; it lies there, and Data is empty
	Notes     []string                   // how it was sent, where that belongs into a record: a login renewed, a request sent once more
}

// TargetInfo is one configured remote.
type TargetInfo struct {
	Name      string   `json:"name"`
	Product   string   `json:"product"`
	Addresses []string `json:"addresses"`
	User      string   `json:"user"`              // castellan's own user or token id there
	Site      string   `json:"site,omitempty"`    // empty until identified
	Version   string   `json:"version,omitempty"` // empty until asked
}

// Desk is what a control operation gets: the caller's own plans, and the doors to approve and apply.
type Desk interface {
	View
	Show(ctx context.Context, id string) (*PlanView, *PlanRecord, error)
	List(ctx context.Context, f PlanFilter) ([]*PlanRecord, string, error)
	// Apply approves as far as the evidence goes, then carries out; progress as in Do.
	Apply(ctx context.Context, id string, e Evidence, token string) (*Outcome, error)
	Withdraw(ctx context.Context, id, why string) (*Outcome, error)
	// Wait returns when the plan has ended or the time is over.
	Wait(ctx context.Context, id string, limit time.Duration) (*PlanRecord, error)
	// Operations lists what this principal may know of.
	Operations() []*Operation
	// Shown says whether the caller has a tool or command of the name of that operation.
	Shown(operation string) bool
	// Status tells what is off for this principal: capability → the refusal that a call would get.
	Status(ctx context.Context) (map[string]Decision, error)
}

// PlanFilter selects plans; zero fields do not filter.
type PlanFilter struct {
	States    []PlanState
	Requester string // Principal.Key
	Since     time.Time
	Limit     int    // 0 = 50
	Cursor    string // from an earlier answer
}

// Driver reaches targets. It never decides.
type Driver interface {
	Targets() []TargetInfo
	// Read sends one catalogued read. The gate has checked its effect.
	Read(ctx context.Context, target string, r Request) (Answer, error)
	// Address is the one that a write would be sent to now.
	Address(target string) (string, error)
	// Send carries out the one write of the permit; it is never sent twice by the driver.
	Send(ctx context.Context, p *Permit) (Answer, error)
	// Identify names the site behind a target (cluster name and certificate); empty when it cannot.
	Identify(ctx context.Context, target string) (string, error)
	// Task reads a task once: running, or its exit status, with the end of its log when it failed.
	Task(ctx context.Context, target, upid string) (TaskState, error)
	// FindTasks lists tasks of castellan's own user on a node that started since, for looking whether a lost write was taken.
	FindTasks(ctx context.Context, target, node string, since time.Time) ([]TaskState, error)
}

// TaskState is what is known of a task.
type TaskState struct {
	UPID     string
	Node     string
	Type     string
	ID       string
	User     string
	Started  time.Time
	Running  bool
	Known    bool   // false: no exit status and not running: unknown
	OK       bool   // ended well, perhaps with warnings
	Exit     string // exit status as told
	Warnings string // the warning lines, joined
	Log      []string
	LogTotal int
}

// Catalog is what the gate asks of the API description.
type Catalog interface {
	Version() string
	// Check makes a request of raw arguments; problems name the parameter and the nearest valid name or value.
	Check(product, operation string, args map[string]any) (Request, []Problem)
	Judge(r Request) Judgement
	// Render gives method, escaped path, query and form body: the bytes that are sent. Secrets and references are
	// rendered as «secret» and «…» unless open resolves them.
	Render(r Request, open func(Value) (string, error)) (Rendered, error)
	// Scrub removes the secret fields of an answer to this request.
	Scrub(r Request, data json.RawMessage) json.RawMessage
	// Outside says who may have written the free text of an answer to this request; none when it holds no free text.
	Outside(r Request, data json.RawMessage) []string
	// SecretValue splits a value of a secret parameter into the text before, the secret, and the text after.
	SecretValue(r Request, param, value string) (parts []SecretPart)
	// SecretName says whether a value under a parameter or key of this name may be a secret in any operation.
	SecretName(name string) bool
	// ReadScope says how an answer is limited to a scope: the path binds a guest, or a row field holds the guest id.
	ReadScope(product, operation string) (pathParam, rowField string, ok bool)
}

// SecretPart is one secret within a value: Text[From:To].
type SecretPart struct{ From, To int }

// Problem is one thing wrong with an argument.
type Problem struct {
	Param   string   `json:"param"`
	Message string   `json:"message"`
	Nearest string   `json:"nearest,omitempty"`
	Valid   []string `json:"valid,omitempty"`
}

// Rendered is a request as bytes.
type Rendered struct {
	Method string
	Path   string // escaped, without /api2/json
	Query  string
	Body   string
	// ContentType is that of the body: application/x-www-form-urlencoded, or application/json where the product needs it.
	ContentType string
	// Download says that a good answer can be a file, which is no JSON.
	Download bool
}

// Policy decides. Implementations answer deny on any error.
type Policy interface {
	// Digest identifies the policy set in force.
	Digest() string
	// Call decides on principal, operation and target before anything is looked at.
	Call(ctx context.Context, q CallQuestion) Decision
	// Plan decides on facts and every step; every (step, kind, object) must be allowed.
	Plan(ctx context.Context, q PlanQuestion) Decision
	// Approve decides whether the approver may approve this plan at the rung.
	Approve(ctx context.Context, q PlanQuestion, approver Principal, rung Rung) Decision
	// Sees says whether an object of a target is in the principal's scope; Scoped whether there is a limit at all.
	Sees(p Principal, target string, o ObjectFacts) bool
	Scoped(p Principal) bool
	// GovernedScope names pools and tags that grant scope: changing membership in them governs.
	GovernedScope() (pools, tags []string)
	// Depends names those and what else of the sort a decision can rest on, and titles of guests; * in one stands for any
	// text, and "*" for any pool or tag.
	Depends() (pools, tags, titles []string)
	// Limits are the budgets and lifetimes in force.
	Limits() Limits
}

// Limits are settings that the gate itself keeps.
type Limits struct {
	PlanTTL        time.Duration // how long a plan waits; default 15 minutes
	WaitTTL        time.Duration // the same where a person must approve; default 12 hours
	ArmingNeeded   bool          // writes pass only within an armed window
	Contained      string        // why every write is refused beside the kill switch in the store; empty = it is not
	ApprovalTTL    time.Duration // how long an approval holds; default 15 minutes
	WritesPerHour  int           // per target; 0 = no limit
	LockWait       time.Duration // how long a step waits for a guest that a task holds; 0 = it does not
	TaintFor       time.Duration // how long free text taints; 0 = an hour
	WithholdRuns   bool          // what is run, and what it prints, stands in the ledger as commitments only
	StandIn        Rung          // RungDialog, RungPhrase, or RungDenied for off: stands for person and above
	Notices        []string      // what every answer must say: a changed configuration was not taken up, ...
	HighestRung    Rung          // the highest rung that this installation can have; dialog where one account holds all
	BackupAge      bool          // policy asks when guests were last backed up; else it is not read
	UndoPoints     []Kind        // before steps of these kinds their guests are snapshotted
	PruneAfter     time.Duration // such snapshots of these guests that are older are deleted then; 0 = none is
	PruneBeside    int           // the newest of each guest that stay however old they are, the new one among them
	StandInSetting string        // how the setting is called, for refusals
}

// CallQuestion is asked before looking.
type CallQuestion struct {
	Principal Principal
	Operation *Operation
	Target    string
	Tainted   bool
	At        time.Time
}

// PlanQuestion is asked of a plan.
type PlanQuestion struct {
	Principal Principal
	Operation string
	Plan      *Plan
	Facts     Facts
	Steps     []Step
	At        time.Time
	// Writes counts the steps sent to each target in the last hour.
	Writes map[string]int
}

// Estate tells what policy needs to know of objects.
type Estate interface {
	// Describe fills name, tags and pools; what it cannot find or read stays Known=false.
	Describe(ctx context.Context, v View, target string, objects []Reference) ([]ObjectFacts, error)
	// Identity gives the conditions that tell these objects from later ones of the same name, and says which have none.
	Identity(ctx context.Context, v View, target string, objects []Object) (conditions []Condition, without []string, err error)
	// Lasting gives the conditions that tell a guest from a later one of its number for months: what stays as it is moved and
	// its settings change, and that none was made, restored or destroyed under the number since. None: nothing tells it.
	Lasting(ctx context.Context, v View, target, vmid string, since time.Time) ([]Condition, error)
	// Definitions gives the conditions by which what a request names, and what its effect reaches through, still stands for
	// what it stands for now; unread says of which names that could not be read.
	Definitions(ctx context.Context, v View, target string, r Request, named []Reference) (conditions []Condition, unread []string)
	// TagRules tells who may give and take tags on the site behind a target.
	TagRules(ctx context.Context, v View, target string) (TagRules, error)
	// NodeOf finds where a guest is now.
	NodeOf(ctx context.Context, v View, target, vmid string) (string, error)
}

// Witness checks what people prove about themselves, and what is left of what they were given. Without one, nobody can
// prove more than a dialog.
type Witness interface {
	// Session says whose live sign-in the token is, with the roles and the expiry that hold now.
	Session(ctx context.Context, token string) (Principal, error)
	// Assertion verifies a WebAuthn assertion (the JSON of navigator.credentials.get) with user verification over the
	// challenge, by a credential of person that is enrolled and past its waiting time.
	Assertion(ctx context.Context, person string, challenge []byte, response json.RawMessage) (Proof, error)
	// Standing gives the principal with the roles and the expiry that it has now; an error when its access has ended. What
	// it did not give (an account of this machine) comes back as it is.
	Standing(ctx context.Context, p Principal) (Principal, error)
}

// Sealer keeps secrets.
type Sealer interface {
	Seal(plain []byte, context string) ([]byte, error)
	Open(box []byte, context string) ([]byte, error)
	// Commit gives a salted commitment; the salt is kept with the sealed value.
	Commit(plain []byte) (commitment string, salt []byte)
	Token() (token, hash string) // random, one use; only the hash is stored
	HashToken(token string) string
	// Redact replaces what looks like a secret in free text.
	Redact(text string) string
}

// Store keeps plans, locks, nonces and the write ledger, all in one database.
type Store interface {
	// Update runs f in one transaction; an error rolls back everything, records included.
	Update(ctx context.Context, f func(Tx) error) error
	// View runs f on a consistent snapshot.
	View(ctx context.Context, f func(Tx) error) error
	// Observe queues a record of the read tree; it never blocks and never fails a call.
	Observe(r Record)
	// Position returns index, size, proof and checkpoint of a write record.
	Position(ctx context.Context, index uint64) (*LedgerPosition, error)
	// Ready says whether writes can be recorded now; the reason when not.
	Ready(ctx context.Context) error
}

// Tx is one transaction.
type Tx interface {
	InsertPlan(r *PlanRecord) error
	Plan(id string) (*PlanRecord, error) // ErrStoreNotFound
	// OpenPlan finds a proposed plan with the same effect digest and requester.
	OpenPlan(effectDigest, requester string) (*PlanRecord, error)
	// UpdatePlan stores r if its Version is still the stored one, and raises it; else ErrStoreConflict.
	UpdatePlan(r *PlanRecord) error
	ListPlans(f PlanFilter) (plans []*PlanRecord, cursor string, err error)
	// Lock takes the object for the plan; holder is another plan that has it.
	Lock(object, plan string, at time.Time) (holder string, err error)
	Unlock(plan string) error
	UseNonce(nonce string, expires time.Time) error // ErrNonceUsed
	// Hit counts an event; Count tells how many lie after since.
	Hit(bucket string, at time.Time) error
	Count(bucket string, since time.Time) (int, error)
	PutSealed(plan, handle string, box []byte) error
	Sealed(plan, handle string) ([]byte, error)
	DropSealed(plan string) error
	// Get returns "" for an absent key. Keys: "taint/<principal>", "kill", "armed_until", ...
	Get(key string) (string, error)
	Set(key, value string) error
	// PutDoc inserts a document whose Version is 0, or replaces the one of that very version; it raises Version. What is
	// there already, or has another version, is ErrStoreConflict.
	PutDoc(d *Doc) error
	// Doc finds a document; one that has expired is ErrStoreNotFound.
	Doc(kind, id string) (*Doc, error)
	// Docs lists documents of a kind by id, expired ones left out.
	Docs(f DocFilter) ([]*Doc, error)
	// DropDoc removes a document; one that is not there is no error.
	DropDoc(kind, id string) error
	// Append adds a record to the write tree.
	Append(r Record) (index uint64, err error)
	// Recorded finds records of the write tree, newest first, with those of this transaction. The signed records count,
	// not the rows beside them; what retention took away is not found.
	Recorded(f RecordFilter) ([]Recorded, error)
}

// RecordFilter selects records of the write tree; zero fields do not filter.
type RecordFilter struct {
	Kind, Operation, Status, Plan string
	From                          uint64 // only records of this index and later ones
	Below                         uint64 // only records before this index; 0 = no bound
	Limit                         int    // 0 = 50, at most 1000
}

// Recorded is a record as the ledger has it, without its parts.
type Recorded struct {
	Index uint64
	Record
}

// Doc is a small document that is no plan: an account, a credential, a session, a client, a mandate, a setting. Who
// keeps it sees to it that its body cannot be forged by whoever can write the database.
type Doc struct {
	Kind    string
	ID      string
	Owner   string    // whose it is, for listing
	Expires time.Time // zero = never
	Version int64
	Body    []byte
}

// DocFilter selects documents of one kind.
type DocFilter struct {
	Kind  string
	Owner string // empty = anybody's
	After string // only ids after this one
	Limit int    // 0 = 200, at most 1000
}

// Record is what the gate tells the ledger: bounded columns that stay, and parts that can be dropped later.
type Record struct {
	At        time.Time
	Kind      string // "intent", "refused", "approval", "step", "step_end", "plan_end", "receipt", "read", "auth", "settings"
	Operation string
	Actor     string // Principal.Key
	Client    string
	WayIn     string
	Target    string
	Objects   []string // "guest/101", ...
	Status    string   // "planned", "waiting", "started", "ok", "failed", "unknown", "denied", "invalid", ...
	Effect    Effect
	Plan      string
	Step      int
	Digest    string // of the plan
	UPID      string
	Duration  time.Duration
	Sizes     map[string]int    // true sizes of capped parts
	Parts     map[string]string // droppable: "args", "answer", "error", "reason", "request"
	// Marks are further fields that are never dropped and hold no text of outsiders: "credential", "receipt", "ip".
	Marks map[string]string
	// Withhold keeps the parts as commitments only.
	Withhold bool
}
