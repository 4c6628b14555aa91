package catalog

import (
	"slices"
	"strings"
	"testing"

	"castellan/internal/gate"
)

// TestCopiesOfDisks: a new disk that is a copy of another guest's takes what a clone takes, and what reading its files takes.
func TestCopiesOfDisks(t *testing.T) {
	c := open(t)
	for from, want := range map[string]string{
		"local:101/vm-101-disk-0.raw":                              "clone file",
		"local-lvm:vm-101-disk-0":                                  "clone file",
		"local-lvm:snap_vm-101-disk-0_before":                      "clone file",
		"local:900/base-900-disk-0.qcow2":                          "clone",
		"local-lvm:base-900-disk-0":                                "clone",
		"local:900/base-900-disk-0.qcow2/101/vm-101-disk-0.qcow2":  "clone file",
		"local:images/whose.qcow2":                                 "clone file",
		"local:import/../images/101/vm-101-disk-0.raw":             "clone file",
		"local:100/vm-100-disk-0.raw":                              "",
		"local:import/appliance.ova/disk.vmdk":                     "",
		"local:101/base-101-x/../../102/vm-102-disk-0.raw":         "clone file",
		"local:900/base-900-disk-0.qcow2/100/vm-100-disk-0.qcow2":  "",
		"local:100/vm-100-disk-0.raw/101/vm-101-disk-0.raw":        "clone file",
		"local:backup/vzdump-qemu-101-2026_01_27-01_00_00.vma.zst": "clone file",
	} {
		for _, op := range []string{setVM, "POST /nodes/{node}/qemu"} {
			args := guest(map[string]any{"scsi1": "local:0,import-from=" + from})
			o := lookup(t, c, "pve", op)
			r, problems := c.Check(o, args)
			if len(problems) > 0 {
				continue // not even a volume
			}
			var got []string
			for _, k := range c.Judge(o, r).Kinds {
				if k == gate.KindClone || k == gate.KindFile {
					got = append(got, string(k))
				}
			}
			slices.Sort(got)
			if text := strings.Join(got, " "); text != want {
				t.Errorf("%s from %s: %q, not %q", op, from, text, want)
			}
		}
	}
}
