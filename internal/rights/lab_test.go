package rights_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/rights"
)

// site is a lab of one version, asked without a network.
type site struct {
	*testing.T
	lab *lab.Lab
}

func newSite(t *testing.T, v rights.Version) *site {
	t.Helper()
	l, err := lab.New(lab.Config{Version: fmt.Sprint(v.Major)})
	if err != nil {
		t.Fatal(err)
	}
	return &site{t, l}
}

// ask sends one request as the owner of an Authorization header.
func (s *site) ask(auth, method, path string, form url.Values) (int, string, json.RawMessage) {
	s.Helper()
	target, body := "/api2/json"+path, []byte(nil)
	h := http.Header{"Authorization": {auth}}
	if method == "GET" || method == "DELETE" {
		target += "?" + form.Encode()
	} else {
		body = []byte(form.Encode())
		h.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	status, reason, answer := s.lab.Do(context.Background(), method, target, h, body)
	var data struct{ Data json.RawMessage }
	_ = json.Unmarshal(answer, &data)
	return status, reason + " " + string(answer), data.Data
}

// shell splits a line as a shell would, as far as these lines go.
func shell(line string) [][]string {
	var out [][]string
	var words []string
	word, quoted, some := "", false, false
	end := func() {
		if some {
			words = append(words, word)
		}
		word, some = "", false
	}
	for _, c := range line {
		switch {
		case c == '\'':
			quoted, some = !quoted, true
		case c == ' ' && !quoted:
			end()
		default:
			word, some = word+string(c), true
		}
	}
	end()
	var one []string
	for _, w := range words {
		if w == "||" {
			out, one = append(out, one), nil
			continue
		}
		one = append(one, w)
	}
	return append(out, one)
}

// pveum does what the command of that name does with the words after it. It returns a new token's header.
func (s *site) pveum(words []string) (string, error) {
	form := url.Values{}
	var plain []string
	for i := 1; i < len(words); i++ {
		if name, ok := strings.CutPrefix(words[i], "--"); ok {
			form.Set(name, words[i+1])
			i++
			continue
		}
		plain = append(plain, words[i])
	}
	method, path := "", ""
	switch verb := strings.Join(plain[:2], " "); {
	case words[0] != "pveum":
		return "", fmt.Errorf("no pveum line: %v", words)
	case verb == "user add":
		method, path = "POST", "/access/users"
		form.Set("userid", plain[2])
	case verb == "role add":
		method, path = "POST", "/access/roles"
		form.Set("roleid", plain[2])
	case verb == "role modify":
		method, path = "PUT", "/access/roles/"+plain[2]
	case verb == "acl modify", verb == "acl delete":
		method, path = "PUT", "/access/acl"
		form.Set("path", plain[2])
		if verb == "acl delete" {
			form.Set("delete", "1")
		}
	case verb == "user token" && plain[2] == "add":
		method, path = "POST", "/access/users/"+plain[3]+"/token/"+plain[4]
	default:
		return "", fmt.Errorf("no command of pveum: %v", words)
	}
	status, text, data := s.ask(s.lab.Tokens()["admin"], method, path, form)
	if status != 200 {
		return "", fmt.Errorf("%v: %d %s", words, status, text)
	}
	var token struct {
		ID    string `json:"full-tokenid"`
		Value string `json:"value"`
	}
	if json.Unmarshal(data, &token) == nil && token.ID != "" {
		return "PVEAPIToken=" + token.ID + "=" + token.Value, nil
	}
	return "", nil
}

// run carries printed lines out, the second half of a line only where the first is refused.
func (s *site) run(lines []string) (token string) {
	s.Helper()
	for _, line := range lines {
		var err error
		for _, words := range shell(line) {
			var made string
			if made, err = s.pveum(words); err == nil {
				token += made
				break
			}
		}
		if err != nil {
			s.Fatalf("%s\n%v", line, err)
		}
	}
	return token
}

// state reads what there is, as an auditor sees it.
func (s *site) state() *rights.State {
	s.Helper()
	read := func(path string, into any) {
		status, text, data := s.ask(s.lab.Tokens()["admin"], "GET", path, url.Values{"full": {"1"}})
		if path != "/access/users" {
			status, text, data = s.ask(s.lab.Tokens()["admin"], "GET", path, nil)
		}
		if status != 200 || json.Unmarshal(data, into) != nil {
			s.Fatalf("%s: %s", path, text)
		}
	}
	var users, roles, acl json.RawMessage
	read("/access/users", &users)
	read("/access/roles", &roles)
	read("/access/acl", &acl)
	out, err := rights.Read(users, roles, acl)
	if err != nil {
		s.Fatal(err)
	}
	return out
}

// trial is one change of each capability, as the API is asked for it.
type trial struct {
	method, path string
	form         string
}

var trials = map[string][]trial{
	"power":         {{"POST", "/nodes/pve1/qemu/103/status/start", ""}, {"POST", "/nodes/pve1/qemu/101/agent/fsfreeze-freeze", ""}},
	"snapshot":      {{"POST", "/nodes/pve1/qemu/101/snapshot", "snapname=taken"}},
	"rollback":      {{"DELETE", "/nodes/pve1/lxc/201/snapshot/clean", ""}, {"POST", "/nodes/pve1/qemu/102/snapshot/before-upgrade/rollback", ""}},
	"backup":        {{"POST", "/nodes/pve1/vzdump", "vmid=201&storage=local"}},
	"config":        {{"PUT", "/nodes/pve1/qemu/101/config", "cores=2&memory=1024&description=x&net1=virtio,bridge=vmbr0&scsi3=local-lvm:1&ciuser=me&vga=std"}, {"PUT", "/nodes/pve1/lxc/201/resize", "disk=rootfs&size=%2B1G"}},
	"create":        {{"POST", "/nodes/pve1/qemu", "vmid=900&memory=512&name=new&scsi0=local-lvm:1&net0=virtio,bridge=vmbr0"}, {"POST", "/nodes/pve1/qemu/104/clone", "newid=901&full=1&storage=local-lvm"}},
	"restore":       {{"POST", "/nodes/pve1/qemu", "vmid=902&archive=local:backup/vzdump-qemu-101-2026_01_01-00_00_00.vma.zst&storage=local-lvm&unique=1"}, {"POST", "/nodes/pve1/lxc", "vmid=903&restore=1&ostemplate=local:backup/vzdump-lxc-201-2026_01_01-00_00_00.tar.zst&storage=local-lvm"}},
	"migrate":       {{"POST", "/nodes/pve1/qemu/103/migrate", "target=pve2"}},
	"destroy":       {{"DELETE", "/nodes/pve2/lxc/203", ""}, {"DELETE", "/nodes/pve1/storage/local/content/local:iso%2Fdebian-13.1.0-amd64-netinst.iso", ""}},
	"delete_config": {{"DELETE", "/cluster/mapping/usb/none", ""}, {"DELETE", "/cluster/metrics/server/none", ""}},
	"settings":      {{"PUT", "/cluster/options", "keyboard=de"}, {"POST", "/cluster/replication", "id=102-0&target=pve2&type=local"}, {"PUT", "/storage/nas", "content=iso"}},
	"network":       {{"POST", "/cluster/sdn/zones", "zone=z1&type=simple"}, {"PUT", "/nodes/pve1/network/vmbr0", "type=bridge&comments=x"}},
	"guard":         {{"PUT", "/cluster/firewall/options", "log_ratelimit=enable=0"}, {"PUT", "/nodes/pve1/qemu/101/config", "protection=0"}, {"PUT", "/cluster/ha/resources/vm:106", "comment=x"}},
	"host":          {{"POST", "/cluster/ha/resources/vm:106/migrate", "node=pve1"}, {"POST", "/nodes/pve1/services/chrony/restart", ""}, {"POST", "/nodes/pve1/termproxy", ""}},
	"file":          {{"POST", "/nodes/pve1/storage/local/content", "vmid=101&filename=vm-101-x.raw&size=1G&format=raw"}, {"POST", "/nodes/pve1/aplinfo", "storage=local&template=none"}},
	"send":          {{"GET", "/nodes/pve1/query-url-metadata", "url=http://127.0.0.1/x"}, {"GET", "/nodes/pve1/scan/nfs", "server=10.10.10.20"}},
	"access":        {{"POST", "/access/groups", "groupid=ops"}, {"PUT", "/access/acl", "path=/vms/101&roles=PVEVMUser&users=limited@pve"}, {"POST", "/access/users", "userid=new@pve"}, {"POST", "/pools", "poolid=more"}},
	"console":       {{"POST", "/nodes/pve1/qemu/101/vncproxy", ""}},
	"license":       {{"PUT", "/nodes/pve1/subscription", "key=pve2c-0123456789"}},
	"expose":        {{"GET", "/nodes/pve1/qemu/101/agent/file-read", "file=/etc/hostname"}},
	"probe":         {{"POST", "/nodes/pve1/qemu/101/agent/exec", "command=df"}},
	"enrol":         {{"POST", "/nodes/pve1/qemu/101/agent/exec", "command=hostname"}},
	"command":       {{"POST", "/nodes/pve1/qemu/101/agent/exec", "command=hostname"}},
	"read_file":     {{"GET", "/nodes/pve1/qemu/101/agent/file-read", "file=/etc/hostname"}},
	"exec":          {{"POST", "/nodes/pve1/qemu/101/agent/exec", "command=hostname"}},
}

// TestThePrintedLinesGiveTheCapability: on each version, for each capability: what castellan's token may not do, it may once the
// lines that are printed for it were run; nothing more than the lines name is needed.
func TestThePrintedLinesGiveTheCapability(t *testing.T) {
	for _, v := range rights.Versions() {
		for _, c := range gate.Capabilities() {
			if slices.Contains(rights.Borrowing(), c) {
				continue
			}
			t.Run(fmt.Sprintf("%d/%s", v.Major, c), func(t *testing.T) {
				if len(trials[c]) == 0 {
					t.Fatal("nothing of this capability is tried")
				}
				s := newSite(t, v)
				w := rights.Want{Version: v, User: "castellan-x@pve", Token: "agent"}
				if err := w.Check(); err != nil {
					t.Fatal(err)
				}
				auth := s.run(rights.Lines(w.Commands(nil)))
				if again := w.Commands(s.state()); len(again) > 0 {
					t.Fatalf("after all was done there is more to do: %v", rights.Lines(again))
				}
				for _, x := range trials[c] {
					form, _ := url.ParseQuery(x.form)
					if status, text, _ := s.ask(auth, x.method, x.path, form); status != 403 {
						t.Errorf("before: %s %s: %d %s", x.method, x.path, status, text)
					}
				}
				w.Capabilities = []string{c}
				lines := rights.Lines(w.Commands(s.state()))
				s.run(lines)
				if again := w.Commands(s.state()); len(again) > 0 {
					t.Errorf("after all was done there is more to do: %v", rights.Lines(again))
				}
				for _, x := range trials[c] {
					form, _ := url.ParseQuery(x.form)
					if status, text, _ := s.ask(auth, x.method, x.path, form); status == 403 || status == 501 || status == 400 && !strings.Contains(text, "no such template") && !strings.Contains(text, "not a valid subscription") {
						t.Errorf("after: %s %s: %d %s\n%s", x.method, x.path, status, text, strings.Join(lines, "\n"))
					}
				}
				// What was read before can still be read: no entry hides what was inherited.
				for _, path := range []string{"/nodes/pve1/qemu/101/config", "/cluster/status", "/nodes/pve1/storage/local/status", "/nodes/pve1/status"} {
					if status, text, _ := s.ask(auth, "GET", path, nil); status != 200 {
						t.Errorf("after: GET %s: %d %s", path, status, text)
					}
				}
			})
		}
	}
}

// TestNarrowed: with pools, nothing beyond them can be seen or done.
func TestNarrowed(t *testing.T) {
	for _, v := range rights.Versions() {
		s := newSite(t, v)
		w := rights.Want{Version: v, User: "castellan-x@pve", Token: "agent", Capabilities: []string{"power", "snapshot", "backup"}, Pools: []string{"prod"}, Guests: []string{"203"}, Storages: []string{"local"}}
		auth := s.run(rights.Lines(w.Commands(nil)))
		for path, want := range map[string]int{"/nodes/pve1/qemu/101/snapshot": 200, "/nodes/pve1/qemu/102/snapshot": 200, "/nodes/pve2/lxc/203/snapshot": 200, "/nodes/pve1/lxc/201/snapshot": 403, "/nodes/pve2/qemu/107/snapshot": 403} {
			if status, text, _ := s.ask(auth, "POST", path, url.Values{"snapname": {"s1"}}); status != want {
				t.Errorf("%v: %s: %d %s", v, path, status, text)
			}
		}
		var guests []struct{ VMID int }
		_, _, data := s.ask(auth, "GET", "/cluster/resources", url.Values{"type": {"vm"}})
		if err := json.Unmarshal(data, &guests); err != nil {
			t.Fatal(err)
		}
		seen := map[int]bool{}
		for _, g := range guests {
			seen[g.VMID] = true
		}
		if want := map[int]bool{101: true, 102: true, 105: true, 203: true}; !maps.Equal(seen, want) {
			t.Errorf("%v: %v are seen", v, seen)
		}
		if pools, ids := s.state().Narrowed(w.User); !slices.Equal(pools, w.Pools) || !slices.Equal(ids, w.Guests) {
			t.Errorf("narrowed to %v %v", pools, ids)
		}
	}
}

// TestNothingIsHidden: who had a role on everything keeps it where an entry of its own begins.
func TestNothingIsHidden(t *testing.T) {
	s := newSite(t, rights.Versions()[1])
	w := rights.Want{Version: rights.Versions()[1], User: "operator@pve", Token: "agent", Capabilities: []string{"snapshot", "config"}}
	auth := s.run([]string{"pveum user token add operator@pve agent --privsep 1", "pveum acl modify / --tokens 'operator@pve!agent' --roles Operator"})
	s.run(rights.Lines(w.Commands(s.state())))
	if status, text, _ := s.ask(auth, "POST", "/nodes/pve1/qemu/103/status/start", nil); status != 200 {
		t.Errorf("a right of the old role is gone: %d %s", status, text)
	}
}

// TestTheEffectiveRolesAreThoseOfTheServer: what is worked out of the access list is what Proxmox itself says.
func TestTheEffectiveRolesAreThoseOfTheServer(t *testing.T) {
	s := newSite(t, rights.Versions()[1])
	w := rights.Want{Version: rights.Versions()[1], User: "castellan-x@pve", Token: "agent", Capabilities: gate.Capabilities(), Guests: []string{"101"}}
	auth := s.run(rights.Lines(w.Commands(nil)))
	s.run([]string{"pveum acl modify /vms/102 --users castellan-x@pve --roles NoAccess", "pveum acl modify /nodes/pve2 --tokens 'castellan-x@pve!agent' --roles PVEAuditor --propagate 0"})
	have := s.state()
	for _, path := range []string{"/", "/vms", "/vms/101", "/vms/102", "/vms/103", "/nodes", "/nodes/pve1", "/nodes/pve2", "/storage", "/storage/local", "/sdn/zones/localnetwork/vmbr0", "/access", "/mapping/usb", "/pool"} {
		_, _, data := s.ask(auth, "GET", "/access/permissions", url.Values{"path": {path}})
		var got map[string]map[string]int
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		want := map[string]bool{}
		of := func(id string) map[string]bool {
			m := map[string]bool{}
			for r := range have.Effective(id, path) {
				for _, p := range have.Roles[r] {
					m[p] = true
				}
			}
			return m
		}
		user := of(w.User)
		for p := range of(w.TokenID()) {
			if user[p] {
				want[p] = true
			}
		}
		if a, b := slices.Sorted(maps.Keys(got[path])), slices.Sorted(maps.Keys(want)); !slices.Equal(a, b) {
			t.Errorf("%s: the server says %v, the list %v", path, a, b)
		}
	}
}

func (s *site) held(auth, path string) map[string]bool {
	s.Helper()
	_, _, raw := s.ask(auth, "GET", "/access/permissions", url.Values{"path": {path}})
	p, err := rights.ReadPermissions(raw)
	if err != nil {
		s.Fatal(err)
	}
	return p[path]
}

// TestGiveNoMore: on a path there is after a grant what there was and what was asked for, whatever the user's other roles hold.
func TestGiveNoMore(t *testing.T) {
	for _, v := range rights.Versions() {
		s := newSite(t, v)
		w := rights.Want{Version: v, User: "castellan-x@pve", Token: "agent", Capabilities: []string{"power", "config"}, Pools: []string{"dev"}}
		auth := s.run(rights.Lines(w.Commands(nil)))
		for _, path := range []string{"/vms", "/vms/101", "/vms/107", "/storage", "/storage/local", "/nodes/pve1", "/pool/prod", "/"} {
			for _, privilege := range []string{"VM.Backup", "Sys.Syslog"} {
				want, other := s.held(auth, path), s.held(auth, "/vms/102")
				s.run(rights.Lines(rights.Give(w.TokenID(), path, []string{privilege}, s.held(auth, path))))
				want[privilege] = path != "/"
				if got := s.held(auth, path); !maps.Equal(got, want) {
					t.Errorf("%s: %s on %s: %v, want %v", v, privilege, path, got, want)
				}
				if path != "/vms" && !maps.Equal(other, s.held(auth, "/vms/102")) {
					t.Errorf("%s: %s on %s changes another guest", v, privilege, path)
				}
			}
		}
		if status, _, _ := s.ask(auth, "POST", "/nodes/pve1/qemu/101/status/stop", nil); status != 403 {
			t.Errorf("%s: power over a guest beyond the pool: %d", v, status)
		}
	}
}

// TestGive: what a refusal prints works too.
func TestGive(t *testing.T) {
	s := newSite(t, rights.Versions()[1])
	w := rights.Want{User: "castellan-x@pve", Token: "agent"}
	auth := s.run(rights.Lines(w.Commands(nil)))
	held := s.held(auth, "/vms/103")
	for range 2 { // the second time everything is there
		s.run(rights.Lines(rights.Give(w.TokenID(), "/vms/103", []string{"VM.PowerMgmt"}, s.held(auth, "/vms/103"))))
	}
	held["VM.PowerMgmt"] = true
	if got := s.held(auth, "/vms/103"); !maps.Equal(got, held) {
		t.Errorf("what was there and what is given is %v, not %v", held, got)
	}
	if status, text, _ := s.ask(auth, "POST", "/nodes/pve1/qemu/103/status/start", nil); status != 200 {
		t.Errorf("%d %s", status, text)
	}
	if status, _, _ := s.ask(auth, "POST", "/nodes/pve1/qemu/101/status/stop", nil); status != 403 {
		t.Errorf("another guest: %d", status)
	}
	for _, hostile := range []string{"a@pve!t;reboot", "$(reboot)@pve!t", "a b@pve", "it's@pve"} {
		for _, c := range rights.Give(hostile, "/vms/1`reboot`", []string{"VM.Audit"}, map[string]bool{"VM.Console": true}) {
			line := c.String()
			for _, bad := range []string{";", "`", "$("} {
				for rest, quoted := line, false; rest != ""; {
					i := strings.IndexAny(rest, "'"+bad[:1])
					if i < 0 {
						break
					}
					if rest[i] == '\'' {
						quoted = !quoted
					} else if !quoted && strings.HasPrefix(rest[i:], bad) {
						t.Errorf("%q stands open in %s", bad, line)
					}
					rest = rest[i+1:]
				}
			}
		}
	}
}
