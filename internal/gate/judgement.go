package gate

import "slices"

// ObjectKind says what an Object is.
type ObjectKind string

// The kinds of objects that parameters refer to.
const (
	ObjectGuest   ObjectKind = "guest"
	ObjectVolume  ObjectKind = "volume"
	ObjectStorage ObjectKind = "storage"
	ObjectNode    ObjectKind = "node"
	ObjectBridge  ObjectKind = "bridge"
	ObjectPool    ObjectKind = "pool"
	ObjectUser    ObjectKind = "user" // also groups, roles, realms and tokens: Kind "user", id as Proxmox writes it
	ObjectZone    ObjectKind = "zone"
	ObjectSite    ObjectKind = "site" // the whole site: cluster-wide settings, "/" in ACL paths, all=1
	ObjectACL     ObjectKind = "acl"  // an ACL path, id is the path
	ObjectTag     ObjectKind = "tag"  // a tag that the request sets or takes away
	// Objects that requests seldom name, but that are hit.
	ObjectSnapshot    ObjectKind = "snapshot" // id "101/name"
	ObjectVNet        ObjectKind = "vnet"
	ObjectInterface   ObjectKind = "interface"   // a network interface of a node, id "pve1/eno1"
	ObjectHA          ObjectKind = "ha"          // an HA resource, id "vm:101"
	ObjectHARule      ObjectKind = "ha_rule"     // a rule, or a group before PVE 9
	ObjectReplication ObjectKind = "replication" // a replication job, id "101-0"
	ObjectJob         ObjectKind = "job"         // a backup job
	ObjectArchive     ObjectKind = "archive"     // a backup, by its volume id
	ObjectFirewall    ObjectKind = "firewall"    // the rules of one scope: "cluster", "node/pve1", "guest/101", "vnet/v1"
	ObjectCeph        ObjectKind = "ceph"        // "osd.3", "mon.pve1", "pool/rbd"
	ObjectMail        ObjectKind = "mail"        // of a Mail Gateway: "rule/12", "domain/example.org", "quarantine"
	ObjectUnknown     ObjectKind = "unknown"     // a reference that cannot be resolved: the worst case
)

// Object is something that a request acts on or refers to, by the name that Proxmox gives it.
type Object struct {
	Site string     `json:"site,omitempty"`
	Kind ObjectKind `json:"kind"`
	ID   string     `json:"id"`
}

func (o Object) String() string {
	if o.ID == "" {
		return string(o.Kind)
	}
	return string(o.Kind) + "/" + o.ID
}

// Use says how a request touches an object.
type Use string

// The uses. Acts is what the request is for; Names only mentions it.
const (
	UseActs  Use = "acts"
	UseNames Use = "names"
	UseHits  Use = "hits" // not named by any parameter, but hit (a walk found it)
)

// Reference is one object that a request touches, and by which parameter.
type Reference struct {
	Object Object `json:"object"`
	Param  string `json:"param,omitempty"` // "vmid", or "net0.bridge" for a key of a property string
	Use    Use    `json:"use"`
}

// CommandRisk says how dangerous a command looks. It may raise what a plan takes, and never lowers it.
type CommandRisk string

// The risks of commands.
const (
	RiskNone   CommandRisk = ""       // nothing is run that a caller chose
	RiskLow    CommandRisk = "low"    // it only reads
	RiskMedium CommandRisk = "medium" // it changes something
	RiskHigh   CommandRisk = "high"   // it destroys, locks out, escapes, or cannot be read
)

// Worse returns the worse of two risks; an unknown word is the worst.
func (r CommandRisk) Worse(than CommandRisk) CommandRisk {
	order := []CommandRisk{RiskNone, RiskLow, RiskMedium, RiskHigh}
	a, b := slices.Index(order, r), slices.Index(order, than)
	if a < 0 || b < 0 {
		return RiskHigh
	}
	return order[max(a, b)]
}

// CommandFact is one command that a request would run.
type CommandFact struct {
	Param   string      `json:"param"`
	Risk    CommandRisk `json:"risk"`
	Reasons []string    `json:"reasons,omitempty"` // why the risk is not lower
	Text    string      `json:"text,omitempty"`    // bounded and clean
}

// CommandRisk is the worst risk of the commands that a request would run.
func (j Judgement) CommandRisk() CommandRisk {
	worst := RiskNone
	for _, c := range j.Commands {
		worst = worst.Worse(c.Risk)
	}
	return worst
}

// Judgement is what the catalogue says of one request: a function of operation, parameters and values.
type Judgement struct {
	Operation  string        `json:"operation"` // "PUT /nodes/{node}/qemu/{vmid}/config"
	Effect     Effect        `json:"effect"`
	Classes    []Class       `json:"classes,omitempty"`
	Kinds      []Kind        `json:"kinds"` // never empty: the rows of the table that this request falls under
	References []Reference   `json:"references,omitempty"`
	Secrets    []string      `json:"secrets,omitempty"` // parameters ("cipassword") and keys ("target-endpoint.apitoken") that hold secrets
	Task       bool          `json:"task,omitempty"`
	Privileges []string      `json:"privileges,omitempty"` // asked for by Proxmox, as "VM.Audit on /vms/100"; a hint
	Sentence   string        `json:"sentence,omitempty"`   // one line of plain English made from the typed request alone
	Commands   []CommandFact `json:"commands,omitempty"`   // what it would run, where the caller chose that
	FreeText   bool          `json:"free_text,omitempty"`  // the answer holds text that outsiders may have written (notes, logs, mail, output)
}
