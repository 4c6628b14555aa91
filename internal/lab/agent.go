package lab

import (
	"fmt"
	"strings"
	"time"
)

// agentState is what the simulated guest agent of a VM remembers.
type agentState struct {
	pid    int
	runs   map[int]*agentRun
	files  map[string]string // content by path
	dirs   map[string]bool
	frozen bool
}

// agentOf checks what every agent call checks: the VM, that it runs, that an agent is configured and answers.
func (c *call) agentOf() (*guest, *agentState, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, nil, err
	}
	if !agentOn(g.conf["agent"]) {
		return nil, nil, die("No QEMU guest agent configured")
	}
	if !g.running {
		return nil, nil, die("VM %d is not running", g.id)
	}
	if g.noAgent || g.shutFail || g.paused {
		f := die("QEMU guest agent is not running")
		f.delay = 3 * time.Second
		return nil, nil, f
	}
	a := c.s.agents[g.id]
	if a == nil {
		a = &agentState{pid: 1000, runs: map[int]*agentRun{}, dirs: map[string]bool{"/": true, "/etc": true, "/run": true, "/tmp": true, "/root": true}, files: map[string]string{"/etc/hostname": g.name() + "\n", "/etc/os-release": "PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nID=debian\n"}}
		c.s.agents[g.id] = a
	}
	return g, a, nil
}

func agentCall(c *call) (any, error) {
	cmd := c.op.Path[strings.LastIndex(c.op.Path, "/")+1:]
	if cmd == "agent" {
		cmd = c.str("command")
	}
	g, a, err := c.agentOf()
	if err != nil {
		return nil, err
	}
	wrap := func(v any) (any, error) { return M{"result": v}, nil }
	if q, err := c.genuineAgent(g); err != nil {
		return nil, err
	} else if q != nil {
		defer q.Close()
		return q.command(cmd)
	}
	switch cmd {
	case "ping", "fsfreeze-thaw", "fsfreeze-freeze", "fsfreeze-status", "fstrim":
		switch cmd {
		case "fsfreeze-freeze":
			a.frozen = true
			return wrap(1)
		case "fsfreeze-thaw":
			a.frozen = false
			return wrap(1)
		case "fsfreeze-status":
			return wrap(map[bool]string{true: "frozen", false: "thawed"}[a.frozen])
		case "fstrim":
			return wrap(M{"paths": []M{{"path": "/", "minimum": 0, "trimmed": 4096}}})
		}
		return wrap(M{})
	case "get-host-name":
		return wrap(M{"host-name": g.name()})
	case "get-osinfo":
		return wrap(M{"id": "debian", "name": "Debian GNU/Linux", "pretty-name": "Debian GNU/Linux 13 (trixie)", "version": "13 (trixie)", "version-id": "13", "kernel-release": "6.12.48+deb13-amd64", "kernel-version": "#1 SMP PREEMPT_DYNAMIC Debian", "machine": "x86_64"})
	case "get-time":
		return wrap(c.s.now.UnixNano())
	case "get-timezone":
		return wrap(M{"zone": "UTC", "offset": 0})
	case "get-users":
		return wrap([]M{{"user": "root", "login-time": float64(c.s.now.Unix() - 60)}})
	case "get-vcpus":
		return wrap([]M{{"logical-id": 0, "online": true, "can-offline": false}})
	case "get-fsinfo":
		return wrap([]M{{"name": "sda1", "mountpoint": "/", "type": "ext4", "total-bytes": int64(10 << 30), "used-bytes": int64(2 << 30), "disk": []M{}}})
	case "get-memory-blocks":
		return wrap([]any{})
	case "get-memory-block-info":
		return wrap(M{"size": int64(134217728)})
	case "info":
		cmds := []M{}
		for _, n := range []string{"guest-ping", "guest-exec", "guest-exec-status", "guest-get-osinfo", "guest-shutdown", "guest-file-open", "guest-file-close", "guest-file-read", "guest-file-write"} {
			cmds = append(cmds, M{"name": n, "enabled": true, "success-response": n != "guest-shutdown"})
		}
		return wrap(M{"version": "10.0.3", "supported_commands": cmds})
	case "network-get-interfaces":
		out := []M{{"name": "lo", "hardware-address": "00:00:00:00:00:00", "ip-addresses": []M{{"ip-address": "127.0.0.1", "ip-address-type": "ipv4", "prefix": 8}}}}
		for k, v := range g.conf {
			if strings.HasPrefix(k, "net") && strings.Contains(v, "bridge=") {
				_, mac, _ := strings.Cut(strings.SplitN(v, ",", 2)[0], "=")
				out = append(out, M{"name": "ens18", "hardware-address": strings.ToLower(mac), "ip-addresses": []M{{"ip-address": fmt.Sprintf("10.10.10.%d", g.id%250), "ip-address-type": "ipv4", "prefix": 24}}})
			}
		}
		return wrap(out)
	case "shutdown":
		return wrap(M{})
	case "suspend-disk", "suspend-hybrid", "suspend-ram", "set-user-password":
		if cmd == "set-user-password" {
			return wrap(M{})
		}
		return wrap(M{"error": M{"class": "GenericError", "desc": "this feature or command is not currently supported"}})
	}
	return wrap(M{"error": M{"class": "CommandNotFound", "desc": "The command guest-" + cmd + " has not been found"}})
}

func monitor(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	if !g.running {
		return fmt.Sprintf("ERROR: VM %d not running\n", g.id), nil
	}
	if c.str("command") == "info status" {
		return map[bool]string{false: "VM status: running\r\n", true: "VM status: paused\r\n"}[g.paused], nil
	}
	return "unknown command: '" + c.str("command") + "'\r\n", nil
}

func guestInterfaces(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	if !g.running {
		return nil, nil
	}
	out := []M{{"name": "lo", "hwaddr": "00:00:00:00:00:00", "hardware-address": "00:00:00:00:00:00", "ip-addresses": []any{}}}
	for _, k := range sortedKeys(g.conf) {
		if strings.HasPrefix(k, "net") && lookup(c.s.api.configs[kindLXC], k) != nil {
			mac := strings.ToLower(option(g.conf[k], "hwaddr"))
			m := M{"name": option(g.conf[k], "name"), "hwaddr": mac, "hardware-address": mac, "ip-addresses": []any{}}
			if ip := option(g.conf[k], "ip"); strings.Contains(ip, "/") && !g.shutFail && g.conf["ostype"] != "alpine" {
				addr, bits, _ := strings.Cut(ip, "/")
				m["inet"] = ip
				m["ip-addresses"] = []M{{"ip-address": addr, "ip-address-type": "inet", "prefix": bits}}
			}
			out = append(out, m)
		}
	}
	return out, nil
}
