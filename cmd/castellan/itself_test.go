package main

import (
	"testing"

	"castellan/internal/anchor"
	"castellan/internal/hosts"
	"castellan/internal/identity"
	notices "castellan/internal/notify"

	"github.com/google/go-cmp/cmp"
)

// TestWhatCastellanUses: each place in the settings that names a machine castellan cannot do without.
func TestWhatCastellanUses(t *testing.T) {
	var s Settings
	s.Daemon.PublicURL, s.Daemon.Hosts, s.Daemon.TrustedProxies = "https://castellan.example", []string{"c.example"}, []string{"10.0.0.2"}
	s.Notify.Webhook, s.Notify.SMTP.Address, s.Notify.Ntfy = notices.Webhook{URL: "https://hook.example/x"}, "mail.example:25", notices.Ntfy{URL: "https://ntfy.example/topic"}
	s.Identity.OIDC = []identity.OIDCSettings{{Issuer: "https://id.example:8443/realms/x"}}
	s.Anchors = []anchor.Settings{{URL: "https://10.0.0.4/head"}, {Address: "tls://[2001:db8::5]:6514"}, {Address: "unix:///run/log"}, {Path: "/var/log/head"}}
	s.Store.URL = "postgres://c:secret@10.0.0.6:5432/castellan"
	var got []string
	for _, text := range s.uses() {
		if host := hosts.Of(text); host != "" {
			got = append(got, host)
		}
	}
	want := []string{"castellan.example", "hook.example", "ntfy.example", "mail.example", "c.example", "10.0.0.2", "id.example", "10.0.0.4", "2001:db8::5", "10.0.0.6"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("hosts (-want +got):\n%s", diff)
	}
}
