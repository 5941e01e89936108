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

// TestAFamilyOfTheNodeThatCannotBeServed: a preflight fails if the Node has an InternalIP of a family that the mode cannot
// serve, of either family. Other addresses of the host do not count if the API server answers.
func TestAFamilyOfTheNodeThatCannotBeServed(t *testing.T) {
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
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var addresses []string
			for _, a := range c.addrs {
				addresses = append(addresses, fmt.Sprintf(`{"type":%q,"address":%q}`, c.kind, a))
			}
			if r.URL.Path != "/api/v1/nodes/n1" {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1"},"status":{"addresses":[%s]}}`, strings.Join(addresses, ","))
		}))
		t.Cleanup(server.Close)
		p := newPreflight(t, "--master", server.URL, "--hostname-override", "n1")
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
