package main

import (
	"castellan/internal/front"
	"castellan/internal/local"
)

// DaemonSettings are the part [daemon]. The packages front and local say what their keys mean.
type DaemonSettings struct {
	Listen         []string `toml:"listen"`             // addresses; "off" for none; default 127.0.0.1:8711
	PublicURL      string   `toml:"public_url"`         // https, except on loopback; default http://localhost and the port
	TLSCert        string   `toml:"tls_cert"`           // PEM file: the certificate with its chain
	TLSKey         string   `toml:"tls_key"`            // PEM file, 0600
	TrustedProxies []string `toml:"trusted_proxies"`    // addresses or ranges whose X-Forwarded-For is believed
	Hosts          []string `toml:"hosts"`              // further names under which requests may come
	MetricsToken   string   `toml:"metrics_token_file"` // whose token reads /metrics from elsewhere
	Socket         string   `toml:"socket"`             // path; "off" for none; default /run/castellan/castellan.sock
	Toolset        []string `toml:"toolset"`            // of clients over HTTP, as serve --toolset; default standard
	Accounts       []string `toml:"accounts"`           // served on the socket: "alice", or "alice=claude" with the name of its agent
	Account        string   `toml:"account"`            // the system account that the daemon has for itself
}

func (d DaemonSettings) http() front.Settings {
	return front.Settings{Listen: d.Listen, PublicURL: d.PublicURL, TLSCert: d.TLSCert, TLSKey: d.TLSKey, TrustedProxies: d.TrustedProxies, Hosts: d.Hosts, MetricsToken: d.MetricsToken}
}

func (d DaemonSettings) local() local.Settings {
	return local.Settings{Socket: d.Socket, Accounts: d.Accounts, Account: d.Account}
}
