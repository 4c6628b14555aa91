package main

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"castellan/internal/gate"
	"castellan/internal/lab"
)

// privileges8 are all that Proxmox VE 8 knows. VM.Monitor, which 9 does not know any more, is left out on purpose.
const privileges8 = `Datastore.Allocate Datastore.AllocateSpace Datastore.AllocateTemplate Datastore.Audit Group.Allocate Mapping.Audit Mapping.Modify Mapping.Use
Permissions.Modify Pool.Allocate Pool.Audit Realm.Allocate Realm.AllocateUser SDN.Allocate SDN.Audit SDN.Use Sys.AccessNetwork Sys.Audit Sys.Console Sys.Incoming
Sys.Modify Sys.PowerMgmt Sys.Syslog User.Modify VM.Allocate VM.Audit VM.Backup VM.Clone VM.Config.CDROM VM.Config.CPU VM.Config.Cloudinit VM.Config.Disk
VM.Config.HWType VM.Config.Memory VM.Config.Network VM.Config.Options VM.Console VM.Migrate VM.PowerMgmt VM.Snapshot VM.Snapshot.Rollback`

// TestGrantsAreTaken: the printed lines name only privileges that the version they are for knows, and each capability
// has some; user and token are granted alike, since a token with privilege separation has what both have.
func TestGrantsAreTaken(t *testing.T) {
	eight := strings.Fields(privileges8)
	s := newSite(t, lab.Config{}, "")
	address := regexp.MustCompile(`addresses = \["([^"]+)"`).FindStringSubmatch(s.text(t))[1]
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // the test's own site
	defer client.CloseIdleConnections()
	for _, c := range gate.Capabilities() {
		both, nine := privilegesOf([]string{c})
		if len(both) == 0 && c != "unjudged" { // what nobody has judged can take anything
			t.Errorf("capability %s takes no privilege", c)
		}
		for _, row := range gate.Table() {
			if row.Capability == c && row.Privilege != "" && !slices.Contains(both, row.Privilege) && !slices.Contains(nine, row.Privilege) {
				t.Errorf("capability %s: the policy table asks for %s, which is not granted", c, row.Privilege)
			}
		}
		for _, p := range both {
			if !slices.Contains(eight, p) {
				t.Errorf("capability %s takes %s, which Proxmox VE 8 does not know", c, p)
			}
		}
		form := url.Values{"roleid": {"Castellan-" + c}, "privs": {strings.Join(append(both, nine...), " ")}}
		req, err := http.NewRequest("POST", "https://"+address+"/api2/json/access/roles", strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", s.lab.Tokens()["admin"])
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("capability %s: a role of %v is refused: %s %s", c, form["privs"], res.Status, body)
		}
		lines := strings.Join(append(firstGrants("castellan@pve!x", []string{c}), pveumLines("castellan@pve!x", []string{c}, nil)...), "\n")
		if strings.Count(lines, "--users castellan@pve") != strings.Count(lines, "--tokens 'castellan@pve!x'") || !strings.Contains(lines, "--users") {
			t.Errorf("capability %s: user and token are not granted alike:\n%s", c, lines)
		}
	}
}
