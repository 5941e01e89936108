// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"errors"
	"net/netip"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/service"
)

// TestUserspace_BoundsLoggedWithScope: a reached limit is logged with its scope: a client, a Service or the process.
func TestUserspace_BoundsLoggedWithScope(t *testing.T) {
	core, logged := observer.New(zap.InfoLevel)
	log := zap.New(core)
	port := userspace.PortID{Service: service.Key{Namespace: "ns1", Name: "web"}, Name: "http", Protocol: service.TCP}
	for why, want := range map[relay.Refusal]string{relay.ClientFull: "client", relay.PartFull: "Service", relay.TotalFull: "process"} {
		sayFull(log)(userspace.Full{Port: port, Client: netip.MustParseAddr("192.0.2.1"), Why: why, Open: 3, Most: 3})
		lines := logged.TakeAll()
		if len(lines) != 1 || lines[0].ContextMap()["scope"] != want || lines[0].ContextMap()["client"] != "192.0.2.1" ||
			lines[0].ContextMap()["service"] != "ns1/web" || lines[0].Message != "TCP connection limit reached; resetting new connections" {
			t.Errorf("%v: logged %+v", why, lines)
		}
	}
	sayDenied(log)(port, &relay.DeniedError{Target: netip.MustParseAddrPort("169.254.169.254:80"), Err: errors.New("link-local")})
	lines := logged.TakeAll()
	if len(lines) != 1 || lines[0].ContextMap()["endpoint"] != "169.254.169.254:80" || lines[0].ContextMap()["service"] != "ns1/web" ||
		lines[0].ContextMap()["error"] != "link-local" {
		t.Errorf("logged %+v", lines)
	}
}

// TestForwarders_Configure: a configuration sets the forwarders' limit per client and the addresses that no endpoint
// may have.
func TestForwarders_Configure(t *testing.T) {
	f := &Forwarders{}
	defer f.Close()
	if _, err := f.of("userspace/IPv4", userspace.Addresses, service.IPv4, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	denied := netip.MustParsePrefix("192.0.2.0/24")
	for _, c := range []struct {
		perClient, least int
		denied           []netip.Prefix
	}{{7, 7, nil}, {0, 16, []netip.Prefix{denied}}, {8, 8, nil}} {
		f.Configure(service.AddressPolicy{Denied: c.denied}, c.perClient)
		if got := f.Registry().ConnectionsPerClient(); got < c.least || c.perClient > 0 && got != c.perClient {
			t.Errorf("one client may have %d connections, want %d", got, c.perClient)
		}
		if err := f.MayDial(denied.Addr()); (err != nil) != (c.denied != nil) {
			t.Errorf("with %v denied: %v", c.denied, err)
		}
	}
}
