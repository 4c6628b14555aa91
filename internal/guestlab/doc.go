// Package guestlab gives tests real Debian guests, and a node for them: containers with a booted systemd, sshd, sudo and dpkg,
// and a machine around them with an sshd of its own, a private /etc, /etc/pve and the commands pct, qm and ha-manager.
//
// A test binary that wants it has
//
//	func TestMain(m *testing.M) { os.Exit(guestlab.Main(m)) }
//
// Main starts the binary again in namespaces of its own (mounts, network, processes, control groups, host name), where
// /etc, /usr, /var/lib, /var/log, /opt and /run can be changed without anybody else seeing it, and the network is
// loopback and a bridge of guests. All of it ends with the test process. A test then says
//
//	lab := guestlab.Open(t)
//	guest := lab.Start(t, guestlab.Guest{Unprivileged: true})
//	out := guest.Run(t, "uname", "-n")
//
// Without root, or without the tools, Main runs the tests where they are, and Open skips: in CI it fails instead.
//
// What is real: the guest's whole userland, lxc-attach, sshd, sudo, qemu-ga. What stands in: pct and qm (a few words of
// them), ha-manager, the files of /etc/pve. What is not there: locks, tasks, storage, a cluster, a VM's own kernel.
package guestlab
