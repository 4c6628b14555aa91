package local

import (
	"fmt"
	"runtime"
	"strings"
)

// Settings are the part of [daemon] that is about this machine's accounts.
type Settings struct {
	// Socket is the path of the unix socket; "off" for none. Default /run/castellan/castellan.sock.
	Socket string `toml:"socket"`
	// Accounts are those whose processes are served on the socket: "alice", or "alice=claude" to name the agent that they
	// are taken for. Default: the account that the daemon runs as, where account is not set.
	Accounts []string `toml:"accounts"`
	// Account is the system account that the daemon has for itself. Only with one do approvals by people and passkeys count
	// as more than a dialog.
	Account string `toml:"account"`
}

// DefaultSocket is where the daemon listens when nobody says otherwise.
const DefaultSocket = "/run/castellan/castellan.sock"

// Path is the socket's; empty when it is off.
func (s Settings) Path() string {
	switch s.Socket {
	case "":
		if runtime.GOOS != "linux" { // nobody could be told apart there
			return ""
		}
		return DefaultSocket
	case "off":
		return ""
	}
	return s.Socket
}

// Agents are the served accounts, each with its agent.
func (s Settings) Agents(usual string) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range s.Accounts {
		name, agent, named := strings.Cut(text, "=")
		if !named {
			agent = usual
		}
		if name == "" || agent == "" || strings.ContainsAny(text, " |:\t\n") {
			return nil, fmt.Errorf("daemon.accounts: %q is no account; write alice, or alice=claude with the name of its agent", text)
		}
		if _, twice := out[name]; twice {
			return nil, fmt.Errorf("daemon.accounts names %q twice", name)
		}
		out[name] = agent
	}
	return out, nil
}
