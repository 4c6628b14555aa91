//go:build linux

package guestlab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// bootLimit is how long a guest may take until its sshd answers; it takes under a second.
const bootLimit = 60 * time.Second

// Guest says what a guest shall be.
type Guest struct {
	ID           int    // 0: a free one. Two tests that run at once cannot have the same
	Suite        string // "bookworm" (empty), "trixie", "noble"
	Unprivileged bool   // its root is user 100000 of the node
	Disk         string // size of what it can write, as "40m"; empty: as much as there is memory
	// Packages are test packages (see archives.sh: "demo-lib", "demo-slow", …) that are installed in their first version, with
	// updates pending in the archives that the guest then knows. Empty but not nil: it knows the archives only.
	Packages []string
	// Debs are packages of Debian beside those of the tree, which are installed after the first boot. What they depend on must be
	// there.
	Debs []string
	// Prepare changes the root file system before the first boot. Of an unprivileged guest, what it makes belongs to nobody
	// there until it is chowned to 100000 and up.
	Prepare func(root string) error
}

// Container is a guest that was started. All of it ends with the test.
type Container struct {
	ID           int
	Name         string // "ct101"
	Address      string // IPv4
	MAC          string // upper case, as Proxmox writes it
	Volume       string // of its root, as its configuration on the node has it
	Root         string // its root file system as the node sees it
	Unprivileged bool
	HostKey      ssh.PublicKey // of its sshd; no other guest has it

	lab *Lab
	dir string
}

// Start boots a guest and waits until its sshd answers. Its tree is made first where no earlier run left one.
func (l *Lab) Start(t testing.TB, g Guest) *Container {
	t.Helper()
	c, err := l.create(t, g)
	if err != nil {
		t.Fatalf("guestlab: create guest: %v", err)
	}
	if err := c.boot(t.Context()); err != nil {
		t.Fatalf("guestlab: %v", err)
	}
	if len(g.Packages) > 0 {
		files, err := firstVersions(c.Root, g.Packages)
		if err != nil {
			t.Fatalf("guestlab: %v", err)
		}
		c.Run(t, append([]string{"dpkg", "--install", "--force-unsafe-io"}, files...)...)
	}
	for _, name := range g.Debs {
		c.Run(t, "dpkg", "--install", "--force-unsafe-io", "/srv/debs/"+name+".deb")
	}
	return c
}

// firstVersions are the files of test packages as the guest sees them.
func firstVersions(root string, packages []string) ([]string, error) {
	var out []string
	for _, name := range packages {
		found, err := filepath.Glob(filepath.Join(root, "srv/guestlab/*/pool/*", name+"_*_all.deb"))
		if err != nil {
			return nil, err
		}
		found = slices.DeleteFunc(found, func(path string) bool {
			pool := filepath.Base(filepath.Dir(path))
			return pool != "base" && pool != "thirdparty"
		})
		slices.Sort(found) // base before thirdparty, the first version before the next
		if found == nil {
			return nil, fmt.Errorf("there is no test package %q", name)
		}
		out = append(out, strings.TrimPrefix(found[0], root))
	}
	return out, nil
}

func (l *Lab) create(t testing.TB, g Guest) (*Container, error) {
	if g.Suite == "" {
		g.Suite = "bookworm"
	}
	tree := g.Suite
	owner := 0
	if g.Unprivileged {
		tree += "-u"
		owner = 100_000
	}
	lower, err := askTree(filepath.Dir(l.dir), tree)
	if err != nil {
		return nil, err
	}
	if g.Packages != nil {
		layer, err := askTree(filepath.Dir(l.dir), "updates-"+tree)
		if err != nil {
			return nil, err
		}
		lower = layer + ":" + lower
	}
	for _, name := range g.Debs {
		layer, err := askTree(filepath.Dir(l.dir), "debs-"+name)
		if err != nil {
			return nil, err
		}
		lower = layer + ":" + lower
	}
	n := l.take(t, "address", 0, 2, 60_000)
	c := &Container{ID: l.take(t, "guest", g.ID, 100, 9999), lab: l, Unprivileged: g.Unprivileged}
	c.Name = fmt.Sprintf("ct%d", c.ID)
	c.Address = fmt.Sprintf("10.99.%d.%d", n/250, n%250+2)
	c.MAC = fmt.Sprintf("02:00:00:63:%02X:%02X", 1+n/250, n%250+2)
	c.Volume = fmt.Sprintf("local-zfs:subvol-%d-disk-0", c.ID)
	c.dir = filepath.Join(l.dir, "guests", strconv.Itoa(c.ID))
	c.Root = filepath.Join(c.dir, "root")
	if err := os.MkdirAll(c.Root, 0o755); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := c.destroy(); err != nil {
			t.Errorf("guestlab: remove guest %d: %v", c.ID, err)
		}
	})
	disk := filepath.Join(c.dir, "disk")
	if err := os.MkdirAll(disk, 0o755); err != nil {
		return nil, err
	}
	if g.Disk != "" {
		if err := unix.Mount("guestlab", disk, "tmpfs", 0, "mode=755,size="+g.Disk); err != nil {
			return nil, fmt.Errorf("mount its disk: %w", err)
		}
	}
	for _, sub := range []string{"upper", "work"} {
		if err := errors.Join(os.Mkdir(filepath.Join(disk, sub), 0o755), os.Chown(filepath.Join(disk, sub), owner, owner)); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(c.dir, "lower"), []byte(lower+"\n"), 0o644); err != nil {
		return nil, err
	}
	if err := unix.Mount("guestlab", c.Root, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", lower, disk, disk)); err != nil {
		return nil, fmt.Errorf("mount its root: %w", err)
	}
	if err := c.writeFiles(owner); err != nil {
		return nil, err
	}
	if g.Prepare != nil {
		if err := g.Prepare(c.Root); err != nil {
			return nil, fmt.Errorf("prepare its root: %w", err)
		}
	}
	return c, c.writeConfig()
}

// writeFiles writes what tells this guest from others of its tree.
func (c *Container) writeFiles(owner int) error {
	old, err := filepath.Glob(filepath.Join(c.Root, "etc/ssh/ssh_host_*"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	hostKey := filepath.Join(c.Root, "etc/ssh/ssh_host_ed25519_key")
	if err := writeKey(hostKey); err != nil {
		return err
	}
	public, err := os.ReadFile(hostKey + ".pub")
	if err != nil {
		return err
	}
	if c.HostKey, _, _, _, err = ssh.ParseAuthorizedKey(public); err != nil {
		return fmt.Errorf("read host key: %w", err)
	}
	authorized, err := os.ReadFile(c.lab.KeyFile + ".pub")
	if err != nil {
		return err
	}
	keys := filepath.Join(c.Root, "root/.ssh")
	files := []string{hostKey, hostKey + ".pub", keys, filepath.Join(keys, "authorized_keys")}
	if err := errors.Join(os.MkdirAll(keys, 0o700), os.WriteFile(files[3], authorized, 0o600),
		os.WriteFile(filepath.Join(c.Root, "etc/hostname"), []byte(c.Name+"\n"), 0o644),
		os.WriteFile(filepath.Join(c.Root, "etc/hosts"), []byte("127.0.0.1 localhost\n127.0.1.1 "+c.Name+"\n"), 0o644)); err != nil {
		return err
	}
	for _, path := range append(files, filepath.Join(c.Root, "etc/hostname"), filepath.Join(c.Root, "etc/hosts")) {
		if err := os.Chown(path, owner, owner); err != nil {
			return err
		}
	}
	return nil
}

// writeConfig writes the configurations: the one that LXC reads, with the control groups where Proxmox has them, and the node's.
func (c *Container) writeConfig() error {
	var b strings.Builder
	b.WriteString("lxc.include = /usr/share/lxc/config/common.conf\n")
	if c.Unprivileged {
		b.WriteString("lxc.include = /usr/share/lxc/config/userns.conf\nlxc.idmap = u 0 100000 65536\nlxc.idmap = g 0 100000 65536\n")
	}
	fmt.Fprintf(&b, `lxc.arch = amd64
lxc.tty.dir =
lxc.tty.max = 0
lxc.rootfs.path = dir:%s
lxc.uts.name = %s
lxc.apparmor.profile = unconfined
lxc.cgroup.relative = 0
lxc.cgroup.dir.monitor = lxc.monitor/%d
lxc.cgroup.dir.container = lxc/%d
lxc.cgroup.dir.container.inner = ns
lxc.net.0.type = veth
lxc.net.0.link = vmbr0
lxc.net.0.flags = up
lxc.net.0.name = eth0
lxc.net.0.veth.pair = %s
lxc.net.0.hwaddr = %s
lxc.net.0.ipv4.address = %s/16
`, c.Root, c.Name, c.ID, c.ID, c.veth(), c.MAC, c.Address)
	lxc := filepath.Join("/var/lib/lxc", strconv.Itoa(c.ID))
	if err := errors.Join(os.MkdirAll(lxc, 0o755), os.WriteFile(filepath.Join(lxc, "config"), []byte(b.String()), 0o644)); err != nil {
		return err
	}
	unprivileged := ""
	if c.Unprivileged {
		unprivileged = "unprivileged: 1\n"
	}
	conf := fmt.Sprintf("arch: amd64\ncores: 1\nhostname: %s\nmemory: 512\nnet0: name=eth0,bridge=vmbr0,hwaddr=%s,ip=%s/16,type=veth\nostype: debian\nrootfs: %s,size=8G\nswap: 512\n%s",
		c.Name, c.MAC, c.Address, c.Volume, unprivileged)
	return os.WriteFile(c.ConfigFile(), []byte(conf), 0o640)
}

func (c *Container) veth() string { return fmt.Sprintf("veth%di0", c.ID) }

// ConfigFile is its configuration in the node's own files.
func (c *Container) ConfigFile() string {
	return filepath.Join(PVE, "nodes", Node, "lxc", strconv.Itoa(c.ID)+".conf")
}

// boot starts it and waits until its sshd answers.
func (c *Container) boot(ctx context.Context) error {
	id, logFile := strconv.Itoa(c.ID), filepath.Join(c.dir, "lxc.log")
	if _, err := must(ctx, bootLimit, "lxc-start", "-n", id, "-d", "-o", logFile, "-l", "WARN"); err != nil {
		text, _ := os.ReadFile(logFile) // an empty one explains nothing, and nothing more is known then
		return fmt.Errorf("start guest %d: %w: %s", c.ID, err, tail(text, 2000))
	}
	return c.answers(ctx)
}

// answers waits for its sshd.
func (c *Container) answers(ctx context.Context) error {
	var last error
	for end := time.Now().Add(bootLimit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err := ctx.Err(); err != nil {
			return err
		}
		conn, err := net.DialTimeout("tcp", c.Address+":22", 200*time.Millisecond)
		if err != nil {
			last = err
			continue
		}
		_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second)) // a failure shows in the read
		_, err = conn.Read(make([]byte, 4))
		conn.Close()
		if err == nil {
			return nil
		}
		last = err
	}
	return fmt.Errorf("guest %d was started, and its sshd has not answered for %s: %w", c.ID, bootLimit, last)
}

// destroy ends it and removes what it had.
func (c *Container) destroy() error {
	ctx := context.Background() // the test's own is over
	id := strconv.Itoa(c.ID)
	if c.Running() {
		if _, err := must(ctx, 30*time.Second, "lxc-stop", "-n", id, "-k"); err != nil {
			return err
		}
	}
	for _, dir := range []string{c.Root, filepath.Join(c.dir, "disk")} {
		if err := unmount(dir); err != nil {
			return err
		}
	}
	return errors.Join(os.RemoveAll(c.dir), os.RemoveAll(filepath.Join("/var/lib/lxc", id)), os.RemoveAll(c.ConfigFile()))
}

// unmount removes the topmost mount of a folder, if it has one; the last process of a guest may hold it for a moment.
func unmount(dir string) error {
	var err error
	for range 50 {
		if err = unix.Unmount(dir, 0); err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("unmount %s: %w", dir, err)
}

// Init is the process that is 1 in the guest, as the node numbers it; 0 when it does not run.
func (c *Container) Init() int {
	text, err := must(context.Background(), 10*time.Second, "lxc-info", "-n", strconv.Itoa(c.ID), "-p", "-H")
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return pid
}

// Running says whether it runs.
func (c *Container) Running() bool { return c.Init() != 0 }

// Exec runs a program in the guest as its root, with a clean environment, for at most a minute.
func (c *Container) Exec(t testing.TB, argv ...string) Result {
	t.Helper()
	return c.exec(t, time.Minute, nil, argv...)
}

// Feed is Exec with something on the standard input of the program, which may take five minutes.
func (c *Container) Feed(t testing.TB, stdin []byte, argv ...string) Result {
	t.Helper()
	return c.exec(t, 5*time.Minute, stdin, argv...)
}

func (c *Container) exec(t testing.TB, limit time.Duration, stdin []byte, argv ...string) Result {
	t.Helper()
	r, err := run(t.Context(), limit, stdin, append([]string{"lxc-attach", "-n", strconv.Itoa(c.ID), "--clear-env", "--"}, argv...)...)
	if err != nil {
		t.Fatalf("guestlab: %v", err)
	}
	return r
}

// Run is Exec for what has to end with 0. It returns the standard output without the space around it.
func (c *Container) Run(t testing.TB, argv ...string) string {
	t.Helper()
	r := c.Exec(t, argv...)
	if r.Code != 0 {
		t.Fatalf("guestlab: %v in guest %d: exit code %d: %s", argv, c.ID, r.Code, tail(append(r.Stdout, r.Stderr...), 2000))
	}
	return strings.TrimSpace(string(r.Stdout))
}

// Dial connects to its sshd as root with the lab's key.
func (c *Container) Dial(t testing.TB) *ssh.Client {
	t.Helper()
	client, err := ssh.Dial("tcp", c.Address+":22", &ssh.ClientConfig{User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(c.lab.Signer)},
		HostKeyCallback: ssh.FixedHostKey(c.HostKey), Timeout: 10 * time.Second})
	if err != nil {
		t.Fatalf("guestlab: dial guest %d: %v", c.ID, err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}
