package restored

import (
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"castellan/internal/gate"
)

// small puts a file system of so many KiB where the folder is to be, which this thread alone sees.
func small(t *testing.T, dir, size string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	runtime.LockOSThread() // never given back: it ends with the test, and the mount with it
	if err := errors.Join(syscall.Unshare(syscall.CLONE_NEWNS), syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""), os.Mkdir(dir, 0o700),
		syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700,size="+size)); err != nil {
		t.Skipf("no file system of its own here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}

// A disk that is full, or would be, is said to be so, nothing is left behind, and what is to stay free stays.
func TestDiskIsFull(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 16<<10) // 256 KiB
	for name, c := range map[string]struct {
		spare, length int64
		size          string
		want          string
	}{
		"told before":             {0, int64(len(text)), "128k", "can be taken of the disk"},
		"seen in the middle":      {0, -1, "128k", "is full"},
		"room that is to stay":    {64 << 10, -1, "300k", "is full"},
		"room, told before":       {64 << 10, int64(len(text)), "300k", "can be taken of the disk"},
		"it fits beside the rest": {16 << 10, int64(len(text)), "512k", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f, dir := folder(t, 1<<20)
			small(t, dir, c.size)
			f.spare = c.spare
			_, err := f.Save("p-1", gate.Download{Name: "a"}, c.length, strings.NewReader(text))
			if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "restored.folder")) {
				t.Errorf("%v", err)
			}
			if left, e := os.ReadDir(dir); e != nil || err != nil && len(left) > 0 {
				t.Errorf("left behind: %v %v", left, e)
			}
			if c.length >= 0 {
				if fits := f.Fits(c.length + 1<<10); err != nil && fits == nil {
					t.Error("it is said to fit")
				}
			}
		})
	}
	t.Run("the disk is filled by others while it comes", func(t *testing.T) {
		f, dir := folder(t, 1<<20)
		small(t, dir, "300k")
		f.spare = 0
		_, err := f.Save("p-1", gate.Download{Name: "a"}, int64(len(text)), io.MultiReader(strings.NewReader(text[:1024]), filling{dir}, strings.NewReader(text[1024:])))
		if err == nil || !strings.Contains(err.Error(), "is full") {
			t.Errorf("%v", err)
		}
	})
}

type filling struct{ dir string }

func (f filling) Read([]byte) (int, error) {
	if err := os.WriteFile(f.dir+"/other", make([]byte, 200<<10), 0o600); err != nil {
		return 0, err
	}
	return 0, io.EOF
}

// A folder of somebody else's is not used, even by root, whom modes do not keep out.
func TestFolderOfAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives folders away")
	}
	f, dir := folder(t, 100)
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Save("p-1", gate.Download{Name: "a"}, -1, strings.NewReader("x")); err == nil || !strings.Contains(err.Error(), "another account") {
		t.Errorf("%v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%v", left)
	}
}
