package reach

import (
	"os"
	"strings"
	"testing"
)

// TestWhatAStartReads: a start asks no other guest for devices that it does not take, and only those of its node for those
// that it does.
func TestWhatAStartReads(t *testing.T) {
	base, err := os.ReadFile("testdata/base.site")
	if err != nil {
		t.Fatal(err)
	}
	for settings, others := range map[string]string{`"memory":"2048"`: "", `"memory":"2048","hostpci0":"01:00.0","usb0":"host=spice"`: "/nodes/pve1/qemu/101/config"} {
		c := &walkCase{t: t, site: string(base) + "\nGET /nodes/pve1/qemu/103/config {" + settings + "}\nGET /nodes/pve1/qemu/103/pending [" + rowsOf(settings) + "]\n"}
		c.steps = append(c.steps, requestOf(t, "POST /nodes/{node}/qemu/{vmid}/status/start\nnode=pve1\nvmid=103"))
		_, asked := c.walk("")
		for _, read := range asked {
			if path, _, _ := strings.Cut(strings.TrimPrefix(read, "GET "), "?"); strings.HasSuffix(path, "/config") && path != others && path != "/nodes/pve1/qemu/103/config" {
				t.Errorf("a start with %s reads %s", settings, read)
			}
		}
		if others != "" && !strings.Contains(strings.Join(asked, "\n"), others) {
			t.Errorf("a start with %s does not read %s", settings, others)
		}
	}
}

// rowsOf writes settings as the list in which those that wait stand.
func rowsOf(settings string) string {
	var out []string
	for part := range strings.SplitSeq(settings, ",") {
		key, value, _ := strings.Cut(part, ":")
		out = append(out, `{"key":`+key+`,"value":`+value+`}`)
	}
	return strings.Join(out, ",")
}
