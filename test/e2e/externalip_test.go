package e2e

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

// externalIPs are addresses of nobody's, which the world sends to the node.
var externalIPs = []string{"203.0.113.7", "2001:db8:113::7"}

// A client outside the cluster that keeps its UDP socket, and so its source port, is served at an external
// IP by the endpoints of the moment, too: one replaced by another, and the first one after none.
func TestUDPFlowsToExternalIPs(t *testing.T) { inEachMode(t, testExternalUDPFlows) }

func testExternalUDPFlows(t *testing.T, mode harness.Mode) {
	c := harness.NewCluster(t)
	c.StartProxy(mode)
	c.CreateService("dns", corev1.ServiceTypeClusterIP, func(spec *corev1.ServiceSpec) { spec.ExternalIPs = externalIPs })
	targets := make([]harness.Target, len(externalIPs))
	for i, address := range externalIPs {
		targets[i] = harness.Target{Network: "udp", Addr: netip.AddrPortFrom(netip.MustParseAddr(address), harness.ServicePort)}
	}
	flows := openFlows(t, []*harness.Host{c.X}, targets)
	// They ask while nobody answers, and the kernel remembers that of them.
	flows.awaitNobody(t, startMax, "no endpoint yet")

	c.SetEndpoints("dns", c.A)
	flows.await(t, "the first endpoint", c.A)
	c.SetEndpoints("dns", c.B)
	flows.await(t, "the endpoint replaced", c.B)
	reachAll(t, changeMax, "and so it is for new clients", []*harness.Host{c.X}, targets, c.B)
	c.SetEndpoints("dns")
	flows.awaitNobody(t, changeMax, "no endpoint left")
	c.SetEndpoints("dns", c.A)
	flows.await(t, "an endpoint again", c.A)
}
