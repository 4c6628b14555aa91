package lane

// networkProbes tell of addresses, routes and connections.
func networkProbes() []Probe {
	family := Arg{Name: "family", Kind: Enum, Summary: "IPv4 or IPv6", Enum: []string{"4", "6"}, Default: "4"}
	return []Probe{
		fixed("addresses", "Network interfaces with their addresses", anywhere, program("ip", "address", "show").other(1).or(program("cat", "/proc/net/dev"))),
		fixed("links", "Bytes, errors and drops of the network interfaces", anywhere, program("cat", "/proc/net/dev")),
		{Name: "routes", Summary: "Routes of all tables", Where: anywhere, Args: []Arg{family}, build: func(v values) Invocation {
			return program("ip", "-"+v["family"], "route", "show", "table", "all").other(1).or(program("cat", map[string]string{"4": "/proc/net/route", "6": "/proc/net/ipv6_route"}[v["family"]]))
		}},
		fixed("neighbours", "Machines seen on the local networks", anywhere, program("ip", "neigh", "show").other(1).or(program("cat", "/proc/net/arp"))),
		fixed("ports", "What listens on which port", anywhere, program("ss", "-n", "-l", "-t", "-u", "-p").or(program("netstat", "-n", "-l", "-t", "-u", "-p").other(1)).or(program("netstat", "-n", "-l", "-t", "-u"))).root(),
		fixed("connections", "Connections that are open, with the processes that hold them", anywhere, program("ss", "-n", "-t", "-p").or(program("netstat", "-n", "-t", "-p").other(1)).or(program("netstat", "-n", "-t"))).root(),
		fixed("sockets", "How many sockets of each kind there are", anywhere, program("cat", "/proc/net/sockstat")),
		fixed("resolver", "How names are resolved", anywhere, program("grep", "-H", "-s", "-E", "-e", "^[^#]", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/hosts").partial(2)),
		{Name: "resolve", Summary: "Addresses of a name, as the system resolves it", Where: anywhere, Args: []Arg{{Name: "name", Kind: Address, Summary: "a host name", Required: true}}, build: func(v values) Invocation {
			return program("getent", "ahosts", v["name"]).ok(2).or(program("nslookup", v["name"]).ok(1))
		}},
	}
}
