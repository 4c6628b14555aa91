//go:build linux

package bridge

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"castellan/internal/frame"
)

// guest is one that was found to be the one that was meant.
type guest struct {
	id         int
	where      frame.Where
	privileged bool // its root is the host's
	init       process
}

// self names this node and its site from the node's own files, each time anew: nodes join clusters and get new certificates.
func (b *Bridge) self() (site, node string, err error) {
	node = b.set.Node
	if node == "" {
		if node, err = os.Hostname(); err != nil {
			return "", "", fmt.Errorf("read the name of this node: %w", err)
		}
		node, _, _ = strings.Cut(node, ".")
	}
	text, err := readBounded(filepath.Join(b.set.Paths.PVE, "pve-root-ca.pem"), 64<<10)
	if err != nil {
		return "", "", fmt.Errorf("read the root certificate of the cluster: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return "", "", errors.New("read the root certificate of the cluster: there is none in pve-root-ca.pem")
	}
	title := node
	corosync, err := readBounded(filepath.Join(b.set.Paths.PVE, "corosync.conf"), 1<<20)
	switch {
	case err == nil:
		if title, err = clusterName(corosync); err != nil {
			return "", "", err
		}
	case !errors.Is(err, os.ErrNotExist):
		return "", "", fmt.Errorf("read the name of the cluster: %w", err)
	}
	print := sha256.Sum256(block.Bytes)
	return title + "-" + hex.EncodeToString(print[:8]), node, nil
}

// clusterName reads totem.cluster_name.
func clusterName(text []byte) (string, error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if key, value, ok := keyValue(lines.Text()); ok && key == "cluster_name" && value != "" {
			return value, nil
		}
	}
	return "", errors.New("read the name of the cluster: corosync.conf does not tell it")
}

// proveNode refuses an ask that is meant for another node or site.
func (b *Bridge) proveNode(p frame.Place) error {
	site, node, err := b.self()
	if err != nil {
		return refuse("Look on the node whether /etc/pve is mounted: systemctl status pve-cluster.", "this bridge cannot prove whose node it is on: %v", err)
	}
	const hint = "castellan's [[bridge]] names another machine than the target is: correct the address of the bridge, or the target."
	if p.Site != site {
		return refuse(hint, "the ask is for the site %.80q, this node belongs to %q", p.Site, site)
	}
	if p.Node != node {
		return refuse(hint, "the ask is for the node %.80q, this is %q", p.Node, node)
	}
	return nil
}

// prove finds what the place names and refuses it unless it is exactly that. A nil guest is the host.
func (b *Bridge) prove(p frame.Place) (*guest, error) {
	if err := b.proveNode(p); err != nil {
		return nil, err
	}
	switch p.Where {
	case frame.Host:
		if p.VMID != 0 || p.Root != "" || p.MAC != "" || p.UUID != "" {
			return nil, refuse("", "the ask is for the host and names a guest")
		}
		return nil, nil
	case frame.CT:
	case frame.VM:
		return nil, refuse("castellan reaches VMs through their guest agent: leave them out of the bridge.", "this bridge runs nothing in VMs")
	default:
		return nil, refuse("", "there is no place %.40q", p.Where)
	}
	if _, err := guestID(strconv.Itoa(p.VMID)); err != nil {
		return nil, refuse("", "%v", err)
	}
	if !b.set.allows(p.VMID) {
		return nil, refuse(b.set.hint("guests", fmt.Sprintf("add %q", strconv.Itoa(p.VMID))), "the bridge does not serve guest %d", p.VMID)
	}
	if p.Root == "" && p.MAC == "" {
		return nil, refuse("Give the container a root volume or a network card, or read it again.", "container %d has nothing that tells it from a later one of its id", p.VMID)
	}
	conf, err := b.guestConfig(p)
	if err != nil {
		return nil, err
	}
	const hint = "Nothing was run. Read the guest again and plan anew: it was replaced, or what names it was changed."
	if got, _, _ := strings.Cut(conf["rootfs"], ","); p.Root != "" && strings.TrimPrefix(got, "volume=") != p.Root {
		return nil, refuse(hint, "container %d is not the one that was meant: its root volume is %.100q, not %.100q", p.VMID, got, p.Root)
	}
	if got := firstMAC(conf); p.MAC != "" && !strings.EqualFold(got, p.MAC) {
		return nil, refuse(hint, "container %d is not the one that was meant: its first hardware address is %.40q, not %.40q", p.VMID, got, p.MAC)
	}
	if p.UUID != "" {
		return nil, refuse(hint, "container %d has no SMBIOS uuid, and one is asked for", p.VMID)
	}
	if conf["template"] == "1" {
		return nil, refuse("", "container %d is a template", p.VMID)
	}
	if lock := conf["lock"]; lock != "" {
		return nil, refuse("Wait for the task that holds it.", "container %d is locked (%.40q)", p.VMID, lock)
	}
	return &guest{id: p.VMID, where: p.Where, privileged: conf["unprivileged"] != "1"}, nil
}

// guestConfig reads the current section of a guest's configuration on this node.
func (b *Bridge) guestConfig(p frame.Place) (map[string]string, error) {
	text, err := readBounded(filepath.Join(b.set.Paths.PVE, "nodes", p.Node, "lxc", strconv.Itoa(p.VMID)+".conf"), 1<<20)
	if errors.Is(err, os.ErrNotExist) {
		return nil, refuse("Look where it is now, and plan anew.", "there is no container %d on node %s now", p.VMID, p.Node)
	}
	if err != nil {
		return nil, refuse("", "the configuration of container %d cannot be read: %v", p.VMID, err)
	}
	conf, err := currentSection(text)
	if err != nil {
		return nil, refuse("", "the configuration of container %d cannot be read: %v", p.VMID, err)
	}
	return conf, nil
}

// currentSection reads what is before the first snapshot or pending section.
func currentSection(text []byte) (map[string]string, error) {
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasPrefix(line, "["):
			return out, nil
		case strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "":
			continue
		}
		key, value, ok := keyValue(line)
		if !ok {
			return nil, errors.New("a line has no colon")
		}
		if _, twice := out[key]; twice && !strings.HasPrefix(key, "lxc.") {
			return nil, fmt.Errorf("%.40q is in it twice", key)
		}
		out[key] = value
	}
	return out, nil
}

// firstMAC is the hardware address of the network card with the lowest number.
func firstMAC(conf map[string]string) string {
	first, at := "", -1
	for key, value := range conf {
		n, err := strconv.Atoi(strings.TrimPrefix(key, "net"))
		if !strings.HasPrefix(key, "net") || err != nil || at >= 0 && n > at {
			continue
		}
		mac := ""
		for part := range strings.SplitSeq(value, ",") {
			if v, ok := strings.CutPrefix(part, "hwaddr="); ok {
				mac = v
			}
		}
		first, at = mac, n
	}
	return first
}

// readBounded reads a whole file of the node's own.
// errLarger says that a file holds more than is read.
var errLarger = errors.New("larger")

func readBounded(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s is %w than %d bytes", path, errLarger, most)
	}
	return b, err
}

// hello says what this bridge is.
func (b *Bridge) hello() (*frame.Self, error) {
	s := &frame.Self{Version: frame.Version, Build: b.build, Lanes: map[frame.Where][]frame.Lane{}, Guests: slices.Clone(b.set.Guests), Account: b.set.Account,
		Root: b.set.Root.Enabled, Words: slices.Clone(b.set.Words), Settings: map[string]string{"path": b.set.path, "files": strings.Join(b.set.Files, ",")}}
	for _, w := range []frame.Where{frame.Host, frame.CT} { // nothing is run in VMs
		open, _ := b.set.lanes(w)
		for _, l := range open {
			s.Lanes[w] = append(s.Lanes[w], frame.Lane(l))
		}
	}
	var err error
	s.Site, s.Node, err = b.self()
	return s, err
}
