//go:build linux

package bridge

import (
	"errors"
	"os"
	"path/filepath"
)

// serviceText is the unit of the service. What it runs inherits what it may do, in containers too, so that it holds only what
// changes nothing there: no_new_privs would break sudo in containers, filters of system calls what their programs do, a
// /tmp, devices or processes of its own what probes are to see. Where scripts run as root of the node, they are to find the node
// as it is, and the half that closes its file system is left out.
func serviceText(rootScripts bool) string {
	closed := closedText
	if rootScripts {
		closed = "# Scripts may run as root of the node here (root.enabled): its file system is left as it is.\n"
	}
	return `[Unit]
Description=castellan's bridge on this node, on loopback
After=network.target pve-cluster.service

[Service]
ExecStart=` + ProgramPath + ` bridge serve
Restart=on-failure
RestartSec=5s
UMask=0077
# What runs on the host or in guests is to live and die with its own limits, and its limits are kept by this process.
TimeoutStopSec=30s
KillMode=mixed
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK AF_PACKET AF_ALG AF_VSOCK
` + closed + `
[Install]
WantedBy=multi-user.target
`
}

// closedText closes the node's own files to it, and what LXC takes from every container that is not of the users' own.
const closedText = `ProtectSystem=full
ReadWritePaths=-/etc/pve
ProtectHome=read-only
CapabilityBoundingSet=~CAP_SYS_MODULE CAP_SYS_TIME CAP_MAC_ADMIN CAP_MAC_OVERRIDE
`

// rootScripts says whether the settings that are there let scripts run as root of the node.
func rootScripts() bool {
	s, err := LoadSettings(DefaultPath)
	return err == nil && s.Root.Enabled
}

// ready says whether the service could start: without its secret it would only fail, again and again.
func ready() bool {
	s, err := LoadSettings(DefaultPath)
	return err == nil && s.Service.Secret != ""
}

// unitFits says whether the unit of the service, where there is one, is the one for the settings.
func unitFits(s Settings) error {
	text, err := os.ReadFile(filepath.Join(unitDir, serviceUnit))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if string(text) != serviceText(s.Root.Enabled) {
		return errors.New("the unit " + serviceUnit + " is not the one for these settings: it was changed, is of another version, or root.enabled has changed since")
	}
	return nil
}
