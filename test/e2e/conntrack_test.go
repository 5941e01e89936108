package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

// The present endpoints serve clients that keep their UDP socket, through changes of the endpoints
// and restarts of the proxy: from outside the cluster, from a pod and from the node itself, through
// the cluster IP and the node port, in both families.
func TestUDPFlowsFollowTheEndpoints(t *testing.T) { inEachMode(t, testUDPFlows) }

func testUDPFlows(t *testing.T, mode harness.Mode) {
	cannot(t, mode, withoutProcess)
	c := harness.NewCluster(t)
	proxy := c.StartProxy(mode)
	dns := c.CreateService("dns", corev1.ServiceTypeNodePort)
	flows := openFlows(t, []*harness.Host{c.X, c.P1, c.N1}, append(clusterIPs(t, dns), nodePorts(t, dns, c.N1)...))
	// Some ask before there is any rule. The kernel's entries for them must not keep them from the
	// first endpoint.
	flows.awaitNobody(t, startMax, "no endpoint yet")

	c.SetEndpoints("dns", c.A)
	flows.await(t, "the first endpoint", c.A)
	c.SetEndpoints("dns", c.B)
	flows.await(t, "the endpoint replaced", c.B)
	c.SetEndpoints("dns", c.B, c.C)
	reachAll(t, changeMax, "another endpoint", []*harness.Host{c.X}, clusterIPs(t, dns), c.B, c.C)
	flows.await(t, "flows stay where they are", c.B)
	c.SetEndpoints("dns", c.C)
	flows.await(t, "the first of two endpoints removed", c.C)

	c.SetEndpoints("dns")
	flows.awaitNobody(t, changeMax, "no endpoint left")
	c.SetEndpoints("dns", c.A)
	flows.await(t, "an endpoint again", c.A)

	if err := proxy.Kill(); err != nil {
		t.Fatal(err)
	}
	flows.await(t, "nothing changes when the proxy is killed", c.A)
	c.SetEndpoints("dns", c.B)
	flows.await(t, "nor when no proxy follows the endpoints", c.A)
	proxy = c.StartProxy(mode)
	flows.await(t, "the next proxy catches up", c.B)

	if err := proxy.Kill(); err != nil {
		t.Fatal(err)
	}
	c.SetEndpoints("dns")
	proxy = c.StartProxy(mode)
	flows.awaitNobody(t, startMax, "the last endpoint went while there was no proxy")
	if err := proxy.Kill(); err != nil {
		t.Fatal(err)
	}
	c.SetEndpoints("dns", c.C)
	c.StartProxy(mode)
	flows.await(t, "the first one came while there was no proxy", c.C)
}

// flows are clients that never close their sockets.
type flows []*netns.Flow

// openFlows opens a flow from each client to each target that takes UDP.
func openFlows(t *testing.T, clients []*harness.Host, targets []harness.Target) flows {
	t.Helper()
	var all flows
	for _, client := range clients {
		for _, target := range targets {
			if target.Network != "udp" {
				continue
			}
			flow, err := client.OpenFlow(t.Context(), netip.AddrPort{}, target.Addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := flow.Close(); err != nil {
					t.Error(err)
				}
			})
			all = append(all, flow)
		}
	}
	return all
}

// await waits until a pod answers every flow, three times in a row.
func (f flows) await(t *testing.T, what string, want *harness.Host) {
	t.Helper()
	harness.Eventually(t, startMax, what, func(ctx context.Context) error {
		for range 3 {
			for _, flow := range f {
				got, err := askFlow(ctx, flow)
				if err != nil {
					return err
				}
				if got != want.Name() {
					return fmt.Errorf("%s: %s answered, want %s", flow, got, want.Name())
				}
			}
		}
		return nil
	})
}

// awaitNobody waits until no flow is answered.
func (f flows) awaitNobody(t *testing.T, limit time.Duration, what string) {
	t.Helper()
	harness.Eventually(t, limit, what, func(ctx context.Context) error {
		for _, flow := range f {
			if got, err := askFlow(ctx, flow); err == nil {
				return fmt.Errorf("%s: %s answered, want no answer", flow, got)
			}
		}
		return nil
	})
}

// askFlow sends one datagram and returns the name of the pod that answers.
func askFlow(ctx context.Context, flow *netns.Flow) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	answer, err := flow.Ask(ctx)
	return answer.Backend, err
}

// externalIPs are addresses that no host has, and that the world routes to the node.
var externalIPs = []string{"203.0.113.7", "2001:db8:113::7"}

// At an external IP, the present endpoints serve a client outside the cluster that keeps its UDP
// socket, too: after a replacement, and the first endpoint after none.
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
	// They ask before there is an answer, and the kernel tracks those flows.
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
