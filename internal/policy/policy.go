package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"

	expast "github.com/cedar-policy/cedar-go/x/exp/ast"

	"castellan/internal/gate"
)

// Config of a Policy.
type Config struct {
	Settings Settings
	// Dir is where Settings.Files start from; empty for the working folder.
	Dir string
	// Highest is the highest rung that this installation can have; RungNone means RungDialog, which is all there is where
	// one account holds agent, keys and policy.
	Highest gate.Rung
	// Users are castellan's own user or token id on each target, for the commands that hints give.
	Users map[string]string
	// Targets are the configured targets: settings for others are refused. Nil checks nothing.
	Targets []string
	// Sites are those of the targets that have guests of their own. With more than one, a guest's number or pool means another
	// guest on each, and settings must say of which it is.
	Sites []string
	// Fleets are those of Sites that pass on to sites of others, of which none is named: numbers and pools mean nothing there.
	Fleets []string
	// Known are "operation", "METHOD /path" pairs that exist: an entry of a forbid list that matches none is refused, since
	// it would forbid nothing. Nil checks nothing.
	Known [][2]string
}

// Policy is one set of rules. It is safe for concurrent use, and what it decides never changes.
type Policy struct {
	rules   *rules
	highest gate.Rung
	users   map[string]string
	digest  string
	parts   []statement          // in the order of printing
	own     map[string]statement // by id
	sets    map[string]cedar.PolicyMap
	kinds   map[gate.Kind]cedar.PolicyMap // for call and write: the policies that can concern a kind
	rows    map[gate.Kind]gate.Row
	calls   callCache
	rests   restsOn // by the policies of the files
}

var _ gate.Policy = (*Policy)(nil)

// New understands the settings and the files, or refuses the whole.
func New(c Config) (*Policy, error) {
	p := &Policy{highest: c.Highest, users: c.Users, own: map[string]statement{}, rows: map[gate.Kind]gate.Row{}}
	if p.highest == gate.RungNone {
		p.highest = gate.RungDialog
	}
	if p.highest < 0 || p.highest > gate.RungTwoPasskeys {
		return nil, fmt.Errorf("load policy: there is no rung %d", int(p.highest))
	}
	var err error
	if p.rules, err = c.Settings.parse(); err != nil {
		return nil, fmt.Errorf("load policy: %w", err)
	}
	if err := p.rules.check(c); err != nil {
		return nil, fmt.Errorf("load policy: %w", err)
	}
	if err := p.rules.bind(c.Sites, c.Fleets); err != nil {
		return nil, fmt.Errorf("load policy: %w", err)
	}
	for _, row := range gate.Table() {
		p.rows[row.Kind] = row
	}
	p.parts = p.rules.compile()
	for _, name := range c.Settings.Files {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(c.Dir, path)
		}
		text, err := readFile(path)
		if err != nil {
			return nil, fmt.Errorf("load policy: policy.files: %w", err)
		}
		found, err := parseFile(name, text)
		if err != nil {
			return nil, fmt.Errorf("load policy: policy.files: %w", err)
		}
		p.parts = append(p.parts, found...)
		for _, s := range found {
			if err := p.rests.take(s.text); err != nil {
				return nil, fmt.Errorf("load policy: policy.files: %s: %w", s.id, err)
			}
		}
	}
	if err := p.prepare(); err != nil {
		return nil, fmt.Errorf("load policy: %w", err)
	}
	sum := sha256.New()
	for _, s := range p.parts {
		fmt.Fprintf(sum, "%s\n%s\n\n", s.id, s.text)
	}
	fmt.Fprintf(sum, "stand_in %d highest %d", p.rules.standIn, p.highest)
	fmt.Fprintf(sum, " windows %v roles %v", p.rules.windows, p.rules.roles)
	p.digest = hex.EncodeToString(sum.Sum(nil))
	return p, nil
}

// check compares the settings with what there is.
func (r *rules) check(c Config) error {
	if c.Targets != nil {
		for name := range r.targets {
			if !slices.Contains(c.Targets, name) {
				return unknown("policy.target", name, c.Targets)
			}
		}
		for role, s := range r.roles {
			for _, t := range s.targets {
				if !slices.Contains(c.Targets, t) {
					return unknown("policy.role."+role+".targets", t, c.Targets)
				}
			}
		}
	}
	if c.Known == nil {
		return nil
	}
	lists := map[string][]pattern{"policy.forbid": r.forbid}
	for name, t := range r.targets {
		lists["policy.target."+name+".forbid"] = t.forbid
	}
	for key, patterns := range lists {
		for text, hit := range matched(patterns, c.Known) {
			if !hit {
				return fmt.Errorf("%s holds %q, which matches no operation and would forbid nothing; castellan catalog find helps to find its name", key, text)
			}
		}
	}
	return nil
}

// matched says which entries match at least one known operation; the patterns of one entry count together.
func matched(patterns []pattern, known [][2]string) map[string]bool {
	out := map[string]bool{}
	for _, p := range patterns {
		out[p.text] = out[p.text] || slices.ContainsFunc(known, func(k [2]string) bool { return glob(p.like, asked(k[0], k[1])) })
	}
	return out
}

// glob matches text with * for any text.
func glob(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	if !strings.HasPrefix(text, parts[0]) {
		return false
	}
	text = text[len(parts[0]):]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return strings.HasSuffix(text, parts[len(parts)-1])
}

// prepare parses, validates and sorts the policies by what they can concern.
func (p *Policy) prepare() error {
	var v *validate.Validator // what the settings compile to is known to be valid
	if slices.ContainsFunc(p.parts, func(s statement) bool { return s.setting == filesKey }) {
		var err error
		if v, err = validator(); err != nil {
			return err
		}
	}
	p.sets = map[string]cedar.PolicyMap{"read": {}, "call": {}, "write": {}, "approve": {}}
	general := cedar.PolicyMap{}
	perKind := map[gate.Kind]cedar.PolicyMap{}
	for _, s := range p.parts {
		if _, twice := p.own[s.id]; twice {
			return fmt.Errorf("there are two policies %q", s.id)
		}
		p.own[s.id] = s
		var c cedar.Policy
		if err := c.UnmarshalCedar([]byte(s.text)); err != nil {
			return fmt.Errorf("policy %s: %w", s.id, err)
		}
		if s.setting == filesKey {
			if err := v.Policy(s.id, (*expast.Policy)(c.AST())); err != nil {
				return fmt.Errorf("policy %s: %w", s.id, explainValidation(err))
			}
		}
		for name, set := range p.sets {
			if s.action == nil || slices.Contains(s.action, name) {
				set[cedar.PolicyID(s.id)] = &c
			}
		}
		switch {
		case s.kind != "":
			perKind[s.kind] = cedar.PolicyMap{cedar.PolicyID(s.id): &c}
		case s.action == nil || slices.Contains(s.action, "call") || slices.Contains(s.action, "write"):
			general[cedar.PolicyID(s.id)] = &c
		}
	}
	// A policy of the table asks for its own kind and nothing else, so those of other kinds need not be evaluated.
	p.kinds = map[gate.Kind]cedar.PolicyMap{}
	for k := range p.rows {
		m := cedar.PolicyMap{}
		for id, c := range general {
			m[id] = c
		}
		for id, c := range perKind[k] {
			m[id] = c
		}
		p.kinds[k] = m
	}
	return nil
}

func validator() (*validate.Validator, error) {
	var s schema.Schema
	if err := s.UnmarshalCedar([]byte(cedarSchema)); err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	r, err := s.Resolve()
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	return validate.New(r), nil
}

// explainValidation adds the attributes that there are.
func explainValidation(err error) error {
	if strings.Contains(err.Error(), "attribute") {
		return fmt.Errorf("%w (docs/policies.md lists the attributes of principal, resource and context for each action)", err)
	}
	return err
}

const (
	filesKey = "policy.files"
	maxFile  = 1 << 20
)

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	i, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch {
	case !i.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no plain file", path)
	case i.Size() > maxFile:
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read", path, i.Size(), maxFile)
	case runtime.GOOS != "windows" && i.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("%s can be written by others (mode %04o): chmod go-w %q", path, i.Mode().Perm(), path)
	}
	b := make([]byte, i.Size())
	n, err := f.ReadAt(b, 0)
	if err != nil && n < len(b) {
		return nil, err
	}
	return b, nil
}

// parseFile reads policies of one's own. An @id annotation names a policy, @reason and @hint are told when it refuses.
func parseFile(name string, text []byte) ([]statement, error) {
	list, err := cedar.NewPolicyListFromBytes(name, text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s holds no policy", name)
	}
	var out []statement
	for i, c := range list {
		a := c.Annotations()
		id := fmt.Sprintf("%s#%d", filepath.Base(name), i+1)
		if own := string(a["id"]); own != "" {
			id = filepath.Base(name) + "#" + own
		}
		s := statement{id: id, setting: filesKey, text: string(c.MarshalCedar()), reason: string(a["reason"]), hint: string(a["hint"])}
		if s.reason == "" {
			s.reason = fmt.Sprintf("policy %s forbids it", id)
		}
		if s.hint == "" {
			s.hint = fmt.Sprintf("Whoever may edit %s decides (line %d).", name, c.Position().Line)
		}
		out = append(out, s)
	}
	return out, nil
}

// Check reads Cedar policies as New would and returns what is wrong with each; nil when all is well.
func Check(name string, text []byte) []error {
	found, err := parseFile(name, text)
	if err != nil {
		return []error{err}
	}
	v, err := validator()
	if err != nil {
		return []error{err}
	}
	var out []error
	seen := map[string]bool{}
	for _, s := range found {
		if seen[s.id] {
			out = append(out, fmt.Errorf("there are two policies %q", s.id))
		}
		seen[s.id] = true
		var c cedar.Policy
		if err := c.UnmarshalCedar([]byte(s.text)); err != nil {
			out = append(out, fmt.Errorf("policy %s: %w", s.id, err))
			continue
		}
		if err := v.Policy(s.id, (*expast.Policy)(c.AST())); err != nil {
			out = append(out, fmt.Errorf("policy %s: %w", s.id, explainValidation(err)))
		}
	}
	return out
}

// CheckFile is Check of a file.
func CheckFile(path string) []error {
	text, err := readFile(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("there is no file %s", path)
		}
		return []error{err}
	}
	return Check(path, text)
}

// Digest identifies the policy set in force.
func (p *Policy) Digest() string { return p.digest }

// Text is the whole policy set as Cedar, each policy under its id and the setting that it comes from.
func (p *Policy) Text() string {
	var b strings.Builder
	for _, s := range p.parts {
		from := s.setting
		if from == "" {
			from = "built in"
		}
		fmt.Fprintf(&b, "// %s (%s)\n%s\n\n", s.id, from, strings.TrimSpace(s.text))
	}
	return b.String()
}

// Schema is what policies of one's own can ask about, in Cedar's form.
func Schema() string { return strings.TrimSpace(cedarSchema) + "\n" }

// Warnings are settings that are allowed but wide.
func (p *Policy) Warnings() []string { return slices.Clone(p.rules.warnings) }

// Limits are the budgets and lifetimes in force.
func (p *Policy) Limits() gate.Limits {
	return gate.Limits{PlanTTL: p.rules.planTTL, WaitTTL: p.rules.waitTTL, ArmingNeeded: p.rules.arming, ApprovalTTL: p.rules.approvalTTL, WritesPerHour: p.rules.writes, UndoPoints: p.rules.undoPoints, PruneAfter: p.rules.pruneAfter, PruneBeside: p.rules.pruneBeside, TaintFor: p.rules.taintFor, LockWait: p.rules.lockWait, WithholdRuns: p.rules.withholdRuns,
		BackupAge: p.asksBackupAge(), StandIn: p.rules.standIn, HighestRung: p.highest, StandInSetting: standInKey}
}

// asksBackupAge says whether any rule may look at when guests were last backed up. A name can be written in escapes.
func (p *Policy) asksBackupAge() bool {
	return slices.ContainsFunc(p.parts, func(s statement) bool {
		return strings.Contains(s.text, "backup_age") || strings.Contains(s.text, `\u`)
	})
}

const standInKey = "policy.stand_in"

// Sees says whether an object of a target is in the principal's scope.
func (p *Policy) Sees(who gate.Principal, target string, o gate.ObjectFacts) bool {
	if !p.rules.scope.sees(target, o) || !p.rules.targets[target].scope.sees(target, o) {
		return false
	}
	in := p.rules.rolesOf(who)
	if len(in) == 0 {
		return true
	}
	return slices.ContainsFunc(in, func(role string) bool { return p.rules.roles[role].scope.sees(target, o) })
}

// Scoped says whether the principal's scope is limited at all.
func (p *Policy) Scoped(who gate.Principal) bool {
	if p.rules.scope.limits() {
		return true
	}
	for _, t := range p.rules.targets {
		if t.scope.limits() {
			return true
		}
	}
	in := p.rules.rolesOf(who)
	return len(in) > 0 && !slices.ContainsFunc(in, func(role string) bool { return !p.rules.roles[role].scope.limits() })
}

// GovernedScope names pools and tags that grant scope.
func (p *Policy) GovernedScope() (pools, tags []string) {
	pools, tags = slices.Clone(p.rules.scope.pools), slices.Clone(p.rules.scope.tags)
	within := p.rules.within
	for _, t := range p.rules.targets {
		pools, tags, within = append(pools, t.scope.pools...), append(tags, t.scope.tags...), slices.Concat(within, t.within)
	}
	for _, w := range within {
		pools, tags = append(pools, w.scope.pools...), append(tags, w.scope.tags...)
	}
	for _, r := range p.rules.roles {
		pools, tags = append(pools, r.scope.pools...), append(tags, r.scope.tags...)
	}
	slices.Sort(pools)
	slices.Sort(tags)
	return slices.Compact(pools), slices.Compact(tags)
}

// rolesOf lists the configured roles of a principal, by membership or by sign-in.
func (r *rules) rolesOf(who gate.Principal) []string {
	var out []string
	for name, role := range r.roles {
		if slices.Contains(who.Roles, name) || who.Agent != "" && slices.Contains(role.members, "agent:"+who.Agent) ||
			who.Person != "" && slices.Contains(role.members, "person:"+who.Person) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
