package lab

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"castellan/internal/catalog/facts"
)

// FuzzRequest sends anything to the site: whatever comes, it answers and stays whole.
func FuzzRequest(f *testing.F) {
	f.Add("GET", "/api2/json/version", "", "")
	f.Add("PUT", "/api2/json/nodes/pve1/lxc/200/config", "application/json", `{"tags":["a",null],"net0":{}}`)
	f.Add("POST", "/api2/json/nodes/pve1/qemu", "application/x-www-form-urlencoded", "vmid=300&scsi0=local:1,format=qcow2&boot=order=scsi0&tags=;;a")
	f.Add("POST", "/api2/json/nodes/pve1/storage/local/upload", "multipart/form-data; boundary=x", "--x\r\nContent-Disposition: form-data; name=\"content\"\r\n\r\niso\r\n--x--\r\n")
	f.Fuzz(func(t *testing.T, method, target, ctype, body string) {
		l, err := New(Config{Site: "small", Facts: sharedFacts()})
		if err != nil {
			t.Fatal(err)
		}
		h := http.Header{"Authorization": {l.Tokens()["admin"]}, "Content-Type": {ctype}}
		st, reason, _ := l.Do(context.Background(), method, target, h, []byte(body))
		if st != 0 && (st < 200 || st > 599) || strings.ContainsAny(reason, "\r\n") {
			t.Errorf("%s %q answers %d %q", method, target, st, reason)
		}
		if st, _, _ := l.Do(context.Background(), "GET", "/api2/json/cluster/resources", h, nil); st != 200 && st != 501 {
			t.Errorf("afterwards the resources answer %d", st)
		}
	})
}

// TestEveryOperationAnswers calls every documented operation with plain values: none may panic, and each answer is
// one that the API could give.
func TestEveryOperationAnswers(t *testing.T) {
	l := newLab(t, "small")
	seen := map[int]int{}
	for _, op := range sortedOps(l) {
		path := op.Path
		form := []string{}
		for name, s := range op.Params {
			val := plainFor(name, s)
			if strings.Contains(path, "{"+name+"}") {
				path = strings.ReplaceAll(path, "{"+name+"}", val)
			} else if !s.Optional && !strings.Contains(name, "[") {
				form = append(form, name, val)
			}
		}
		for strings.Contains(path, "{") {
			i, j := strings.Index(path, "{"), strings.Index(path, "}")
			path = path[:i] + "x1" + path[j+1:]
		}
		if op.Method == "POST" && op.Path == "/nodes/{node}/status" {
			continue // it would take the site's own node down
		}
		r := ask(t, l, "admin", op.Method, path, form...)
		seen[r.Status]++
		if r.Status < 200 || r.Status > 599 || r.Status == 501 {
			t.Errorf("%s %s: %d %s", op.Method, path, r.Status, r.Reason)
		}
	}
	t.Logf("answers by status: %v", seen)
}

func sortedOps(l *Lab) []*facts.Operation {
	api, err := sharedFacts().API(facts.PVE)
	if err != nil {
		return nil
	}
	return api.Operations
}

// plainFor is a value that fits a parameter.
func plainFor(name string, s *facts.Schema) string {
	known := map[string]string{"node": "pve1", "vmid": "101", "storage": "local", "userid": "joe@pve", "realm": "pve", "poolid": "dev", "groupid": "ops", "roleid": "Operator", "upid": "UPID:pve1:00000001:00000001:60000000:qmstart:101:root@pam:", "newid": "900",
		"snapname": "s1x", "target": "pve2", "zone": "lab", "vnet": "vlab", "volume": "local:iso/debian-13.1.0-amd64-netinst.iso", "timeframe": "hour", "schedule": "daily", "cidr": "10.10.10.5", "group": "webserver", "sid": "vm:106", "pos": "0", "iface": "vmbr0", "service": "pveproxy",
		"path": "/vms/101", "roles": "Operator", "password": "secret1234", "ds": "cpu1", "source": "10.0.0.1", "rule": "gateway-nodes", "tokenid": "t9", "url": "https://127.0.0.1/x.iso", "filename": "x.iso", "content": "iso", "disk": "scsi0", "size": "+1G"}
	if v, ok := known[name]; ok {
		return v
	}
	if len(s.Enum) > 0 {
		return enumText(s.Enum[0])
	}
	switch s.Type {
	case "integer", "number":
		if s.Minimum != nil {
			return s.Minimum.String()
		}
		return "1"
	case "boolean":
		return "1"
	}
	return "x1y"
}
