// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
)

// nodeServer is an API server that has the Node n1 with addresses of a kind.
func nodeServer(t *testing.T, kind string, addrs ...string) string {
	var addresses []string
	for _, a := range addrs {
		addresses = append(addresses, fmt.Sprintf(`{"type":%q,"address":%q}`, kind, a))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/nodes/n1" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1"},"status":{"addresses":[%s]}}`, strings.Join(addresses, ","))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestPreflight_ForwardedFamilies: a preflight checks forwarding for the families of the Node's InternalIPs, and for
// IPv4 if they are unknown.
func TestPreflight_ForwardedFamilies(t *testing.T) {
	v4, v6 := "192.0.2.1", "2001:db8::1"
	for _, c := range []struct {
		name  string
		addrs []string
		want  service.PerFamily[bool]
	}{
		{"n1", []string{v4}, service.PerFamily[bool]{service.IPv4: true}},
		{"n1", []string{v6}, service.PerFamily[bool]{service.IPv6: true}},
		{"n1", []string{v4, v6}, service.PerFamily[bool]{service.IPv4: true, service.IPv6: true}},
		{"other", []string{v6}, service.PerFamily[bool]{service.IPv4: true}},
	} {
		p := newPreflight(t, "--master", nodeServer(t, "InternalIP", c.addrs...), "--hostname-override", c.name)
		if got := p.forwarded(t.Context()); got != c.want {
			t.Errorf("%s, %v: %v, want %v", c.name, c.addrs, got, c.want)
		}
	}
}

// TestPreflight_UnservedNodeFamily: a preflight fails if the Node has an InternalIP of a family that the mode cannot
// serve. Other addresses of the host do not count if the API server answers.
func TestPreflight_UnservedNodeFamily(t *testing.T) {
	for _, c := range []struct {
		served service.Family
		kind   string
		addrs  []string
		want   string
	}{
		{service.IPv4, "InternalIP", []string{"192.0.2.1"}, ""},
		{service.IPv4, "InternalIP", []string{"192.0.2.1", "2001:db8::1"}, "IPv6 address 2001:db8::1"},
		{service.IPv6, "InternalIP", []string{"192.0.2.1", "2001:db8::1"}, "IPv4 address 192.0.2.1"},
		{service.IPv4, "ExternalIP", []string{"2001:db8::1"}, ""},
	} {
		p := newPreflight(t, "--master", nodeServer(t, c.kind, c.addrs...), "--hostname-override", "n1")
		p.backend = &setup.Backend{Mode: setup.IPTables, Domains: []proxy.Domain{{Family: c.served}}}
		p.families(t.Context())
		switch {
		case c.want == "" && len(p.report.Checks) > 0:
			t.Errorf("%v: %+v", c, p.report.Checks)
		case c.want != "" && (len(p.report.Checks) != 1 || p.report.Checks[0].Result != Fail || !strings.Contains(p.report.Checks[0].Message, c.want)):
			t.Errorf("%v: %+v, want a failure with %q", c, p.report.Checks, c.want)
		}
	}
}
