// SPDX-License-Identifier: Apache-2.0

package userspace_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

var (
	webKey = service.Key{Namespace: "ns1", Name: "web"}
	ofWeb  = "of ns1/web http"
)

// traffic returns what the Service has passed on.
func (w *world) traffic() *traffic.ServiceTally {
	w.Helper()
	of := w.registry.Traffic(webKey)[w.family]
	if of == nil {
		w.Fatal("the Service has no traffic")
	}
	return of
}

// TestKernelTraffic_CountedAtOnce: traffic is counted per endpoint while a connection or session is open.
func TestKernelTraffic_CountedAtOnce(t *testing.T) {
	eachFamily(t, userspace.Config{}, func(w *world) {
		w.backend(0)
		lines := append([]string{ofWeb}, w.to(0)...)
		w.write(w.want(addressOf(addresses[w.family].cluster)), w.want(listenerOf(service.TCP, w.cluster(80), lines...)))
		session, err := netnstest.Connect(w.Context(), w.client, w.cluster(80))
		check(w, err)
		for i := range uint64(3) {
			before := w.traffic()
			check(w, session.Echo(w.Context(), "0123456789"))
			w.eventually("the echo is counted while the connection is open", func() bool {
				now := w.traffic().Endpoints[w.endpoint(0)]
				return now.Open == 1 && now.BytesIn >= before.BytesIn+10 && now.BytesOut >= before.BytesOut+10
			})
			if now := w.traffic(); now.BytesIn > (i+1)*100 || now.BytesOut > (i+1)*100 {
				w.Errorf("%d bytes are counted to targets and %d to clients", now.BytesIn, now.BytesOut)
			}
		}
		found, more := w.registry.Connections(0, 10, func(*userspace.Open) bool { return true })
		if len(found) != 1 || more || found[0].Port.Service != webKey || found[0].Port.Name != "http" || found[0].Target != w.endpoint(0) ||
			found[0].Place != (relay.Place{Protocol: service.TCP, At: w.cluster(80)}) || found[0].Client.Addr() != addresses[w.family].client {
			w.Errorf("open: %+v", found)
		}
		check(w, session.Close())
		w.eventually("the connection has ended", func() bool { return w.traffic().Open == 0 })
		w.write(w.gone(listenerOf(service.TCP, w.cluster(80), lines...)), w.want(listenerOf(service.UDP, w.cluster(80), lines...)))
		w.names(w.client, "udp", w.cluster(80), 5)
		w.eventually("the sessions are counted", func() bool {
			now := w.traffic()
			return now.Connections == 5 && now.Endpoints[w.endpoint(0)].Open == 5 && now.BytesOut > 0
		})
		w.write(w.gone(listenerOf(service.UDP, w.cluster(80), lines...)))
		w.eventually("nothing is left to count", func() bool { return w.registry.Traffic(webKey)[w.family] == nil })
	})
}

// TestKernelTraffic_RefusalsCounted: refused clients are counted by reason, and failed connects at the endpoint where
// they failed.
func TestKernelTraffic_RefusalsCounted(t *testing.T) {
	for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
		t.Run(family.String(), func(t *testing.T) {
			w := newWorld(t, family, userspace.Config{Registry: userspace.NewRegistry(userspace.Bounds{Connections: 4, ConnectionsPerClient: 4})})
			w.backend(0)
			w.write(w.want(addressOf(addresses[w.family].cluster)))
			w.write(w.want(listenerOf(service.TCP, w.cluster(80), append([]string{ofWeb}, w.to(1, 0)...)...)))
			for range 4 {
				w.names(w.client, "tcp", w.cluster(80), 1)
				w.eventually("the connection has ended", func() bool { return w.forwarder.Stats().Connections.Load() == 0 })
			}
			if now := w.traffic(); now.Failures == 0 || now.Retries != now.Failures || now.Endpoints[w.endpoint(1)].Failures != now.Failures || now.Connections != 4 {
				w.Errorf("counted %+v", now)
			}
			session, err := netnstest.Connect(w.Context(), w.client, w.cluster(80))
			check(w, err)
			w.expectReset(w.cluster(80))
			check(w, session.Close())
			w.eventually("the connection has ended", func() bool { return w.traffic().Open == 0 })
			w.write(w.want(listenerOf(service.TCP, w.cluster(80), append([]string{ofWeb}, w.to(1)...)...)))
			w.expectReset(w.cluster(80))
			now := w.traffic()
			if now.Refused != (traffic.Refusals{traffic.Limit: 1, traffic.Unreachable: 1}) {
				w.Errorf("refused: %v", now.Refused)
			}
		})
	}
}

// TestKernelAffinity_PerServicePort: a client with affinity gets the same endpoint at every frontend of the Service
// port, also at its node port.
func TestKernelAffinity_PerServicePort(t *testing.T) {
	eachFamily(t, userspace.Config{}, func(w *world) {
		for i := range 3 {
			w.backend(i)
		}
		a, nodePort := addresses[w.family], netip.AddrPortFrom(addresses[w.family].node, 30080)
		lines := append([]string{ofWeb, "affinity 10800"}, w.to(0, 1, 2)...)
		w.write(w.want(addressOf(a.cluster)), w.want(addressOf(a.other)))
		other := netip.AddrPortFrom(a.other, 8080)
		for network, protocol := range networks {
			for _, at := range []netip.AddrPort{w.cluster(80), other, nodePort} {
				w.write(w.want(listenerOf(protocol, at, lines...)))
			}
			first := w.names(w.client, network, w.cluster(80), 1)
			for _, at := range []netip.AddrPort{other, nodePort, w.cluster(80)} {
				for name, n := range w.names(w.client, network, at, 6) {
					if first[name] != 1 {
						w.Errorf("%s to %v: %d times %s, want %v", network, at, n, name, first)
					}
				}
			}
		}
	})
}

// TestKernelSourceAddress_NodeProcess: the proxy sees a process of the node that connects to a Service with the Service
// address over IPv4, as for any local route without a preferred source, and with another address over IPv6. The
// endpoint never sees the Service address.
func TestKernelSourceAddress_NodeProcess(t *testing.T) {
	bothFamilies(t, userspace.Config{}, func(w *world) {
		w.backend(0)
		w.write(w.want(addressOf(addresses[w.family].cluster)), w.want(listenerOf(service.TCP, w.cluster(80), w.to(0)...)))
		session, err := netnstest.Connect(w.Context(), w.node, w.cluster(80))
		check(w, err)
		defer session.Close() // the test ends
		found, _ := w.registry.Connections(0, 10, func(*userspace.Open) bool { return true })
		if len(found) != 1 {
			w.Fatalf("%d connections are open, want one", len(found))
		}
		from := found[0].Client.Addr()
		if own := from == addresses[w.family].cluster; own != (w.family == service.IPv4) {
			w.Errorf("the node comes from %v", from)
		}
		if seen := session.Answer().Client.Addr(); seen == addresses[w.family].cluster {
			w.Errorf("the endpoint sees the node as %v", seen)
		}
	})
}
