package backups

import (
	"testing"
	"time"
)

func TestBook(t *testing.T) {
	v := newLabView(t, "small", "admin", noon)
	got := Book{}.Newest(t.Context(), v, "lab", []string{"101", "106", "999"})
	if len(got) != 1 || noon.Sub(got["101"]) > 10*time.Hour {
		t.Errorf("%v", got)
	}
	if n := len(v.asked); n > 60 {
		t.Errorf("%d reads", n)
	}
	if got := (Book{}).Newest(t.Context(), newLabView(t, "small", "auditor", noon), "lab", []string{"101"}); len(got) != 0 {
		t.Errorf("without a look at archives: %v", got)
	}
	for volume, owner := range map[string]string{"local-lvm:vm-101-disk-0": "101", "nas:103/vm-103-disk-0.qcow2": "103", "nas:backup/vzdump-qemu-101-2026_11_28-02_30_00.vma.zst": "",
		"pbs1:backup/vm/101/2026-11-28T02:30:00Z": "", "local:iso/x.iso": "", "": ""} {
		if got := (Book{}).Owner(volume); got != owner {
			t.Errorf("%s is of %q", volume, got)
		}
	}
}
