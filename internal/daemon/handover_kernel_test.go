// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestSettle_LateReplyEntryRemoved: no conntrack entry leads to settled forwarders. A reply that comes after the first
// look at conntrack creates another entry, which must be removed before the forwarder's address: a client that reused
// its port would wait in vain.
func TestSettle_LateReplyEntryRemoved(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	frontend, slow := netip.MustParseAddrPort("10.0.0.41:53"), settleMin+settleMin/2
	forwarders := &backend.Forwarders{}
	defer forwarders.Close()
	forwardTo(t, forwarders, frontend, thinkingEndpoint(t, slow))
	check(t, backend.PreserveConnections()) // the kernel tracks connections from here on
	client, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(frontend))
	check(t, err)
	defer client.Close() // the test ends
	_, err = client.Write([]byte("?"))
	check(t, err)
	testenv.Eventually(t, "the forwarder got the request", func() bool { return forwarders.Busy() > 0 })
	settle(t.Context(), forwarders, settleMin, false, zap.NewNop())
	if left, err := forwarders.Forget(t.Context()); left != 0 || err != nil {
		t.Errorf("%d conntrack entries still lead to the forwarder: %v", left, err)
	}
	check(t, client.SetReadDeadline(time.Now().Add(testenv.Patience)))
	if _, err := client.Read(make([]byte, 1)); err != nil {
		t.Errorf("the client got no reply: %v", err)
	}
}

// thinkingEndpoint answers each datagram after a time.
func thinkingEndpoint(t *testing.T, thinks time.Duration) netip.AddrPort {
	t.Helper()
	endpoint, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	check(t, err)
	t.Cleanup(func() { _ = endpoint.Close() })
	go func() {
		for {
			_, from, err := endpoint.ReadFromUDPAddrPort(make([]byte, 1))
			if err != nil {
				return
			}
			time.AfterFunc(thinks, func() { _, _ = endpoint.WriteToUDPAddrPort([]byte("!"), from) })
		}
	}()
	return endpoint.LocalAddr().(*net.UDPAddr).AddrPort()
}

// forwardTo makes forwarders serve one Service over UDP.
func forwardTo(t *testing.T, forwarders *backend.Forwarders, frontend, endpoint netip.AddrPort) {
	t.Helper()
	domains, err := backend.Userspace(forwarders, backend.UserspaceOptions{Log: zap.NewNop()})
	check(t, err)
	view := &service.View{Key: service.Key{Namespace: "ns1", Name: "dns"}}
	view.Ports[service.IPv4] = []service.PortView{{Name: "dns", Protocol: service.UDP, Port: frontend.Port(),
		ClusterIP: frontend.Addr(), HasAny: true, Cluster: []service.Endpoint{{AddrPort: endpoint}}}}
	var changes []dataplane.Change
	for _, o := range domains[0].Renderer.Service(context.Background(), view, &service.NodeFacts{}) {
		changes = append(changes, dataplane.Change{ID: o.ID, After: &o, Owner: view.Key})
	}
	if r := domains[0].Writer.Write(t.Context(), &dataplane.Batch{Changes: changes}); r.Outcome != dataplane.Landed {
		t.Fatalf("write: %v", r)
	}
}
