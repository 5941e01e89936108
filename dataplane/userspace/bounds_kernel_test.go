// SPDX-License-Identifier: Apache-2.0

package userspace_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// bounded is a world with bounds, as a rule of 8 connections and 8 sessions, 2 of each for one
// Service. Each of five Services has a frontend; the first has three, of two Service ports.
type bounded struct {
	*world
	said chan userspace.Full
	web  []netip.AddrPort
	// others are the frontends of other Services.
	others []netip.AddrPort
}

func eachBounded(t *testing.T, protocol service.Protocol, bounds userspace.Bounds, test func(w *bounded)) {
	for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
		t.Run(family.String(), func(t *testing.T) {
			w := &bounded{said: make(chan userspace.Full, 100)}
			bounds.Full = func(f userspace.Full) { w.said <- f }
			w.world = newWorld(t, family, userspace.Config{Registry: userspace.NewRegistry(bounds)})
			w.backend(0)
			a := addresses[family]
			w.write(w.want(addressOf(a.cluster)), w.want(addressOf(a.other)))
			open := func(of string, at netip.AddrPort) netip.AddrPort {
				w.write(w.want(listenerOf(protocol, at, append([]string{"of ns1/" + of}, w.to(0)...)...)))
				return at
			}
			w.web = []netip.AddrPort{
				open("web http", w.cluster(80)), open("web http", netip.AddrPortFrom(a.other, 8080)), open("web admin", w.cluster(81)),
			}
			for i, of := range []string{"db", "c", "d", "e"} {
				w.others = append(w.others, open(of, w.cluster(uint16(90+i))))
			}
			test(w)
		})
	}
}

// expectSaid wants one message about a bound so far, and that the Service's refusals are counted.
func (w *bounded) expectSaid(want userspace.Full, refused uint64) {
	w.Helper()
	want.Client = addresses[w.family].client
	w.eventually("a bound is said", func() bool { return len(w.said) > 0 })
	if got := <-w.said; got != want || len(w.said) != 0 {
		w.Errorf("said %+v and %d more, want %+v", got, len(w.said), want)
	}
	of := w.registry.Traffic(want.Port.Service)[w.family]
	if of == nil || of.Refused[traffic.Limit] != refused {
		w.Errorf("counted of %v: %+v, want %d clients beyond a limit", want.Port.Service, of, refused)
	}
}

func (w *bounded) port(protocol service.Protocol, of, name string) userspace.PortID {
	return userspace.PortID{Service: service.Key{Namespace: "ns1", Name: of}, Name: name, Protocol: protocol, Family: w.family}
}

// connect opens connections that stay open.
func (w *bounded) connect(at netip.AddrPort) {
	w.Helper()
	session, err := netnstest.Connect(w.Context(), w.client, at)
	check(w, err)
	w.Cleanup(func() { _ = session.Close() }) // the forwarder may have ended it
}

// TestKernelBounds_ConnectionsPerService: the connection limit of a Service covers all its frontends and ports. Other
// Services are still served, up to the limit of the process.
func TestKernelBounds_ConnectionsPerService(t *testing.T) {
	eachBounded(t, service.TCP, userspace.Bounds{Connections: 8, ConnectionsPerClient: 100}, func(w *bounded) {
		w.connect(w.web[0])
		w.connect(w.web[1])
		for _, at := range w.web {
			w.expectReset(at)
		}
		w.expectSaid(userspace.Full{Port: w.port(service.TCP, "web", "http"), Why: relay.PartFull, Open: 2, Most: 2}, 3)
		for _, at := range w.others[:3] {
			w.connect(at)
			w.connect(at)
		}
		w.expectReset(w.others[3])
		w.expectReset(w.others[3])
		w.expectSaid(userspace.Full{Port: w.port(service.TCP, "e", ""), Why: relay.TotalFull, Open: 8, Most: 8}, 2)
		w.write(w.gone(listenerOf(service.TCP, w.others[0])))
		w.expectReset(w.others[3]) // connections of a listener that has gone still count
	})
}

// TestKernelBounds_SessionsPerService: at the session limit of a Service, a new client replaces the least active
// session of the same Service, at any frontend, and no session of another Service.
func TestKernelBounds_SessionsPerService(t *testing.T) {
	eachBounded(t, service.UDP, userspace.Bounds{Sessions: 8, ConnectionsPerClient: 100}, func(w *bounded) {
		w.ask(w.others[0])
		w.ask(w.web[0])
		w.ask(w.web[1])
		w.expectSessions(w.others[0], w.web[0], w.web[1])
		w.ask(w.web[2])
		w.expectSessions(w.others[0], w.web[1], w.web[2])
		w.expectSaid(userspace.Full{Port: w.port(service.UDP, "web", "http"), Why: relay.PartFull, Open: 2, Most: 2}, 1)
		w.ask(w.web[2])
		w.expectSessions(w.others[0], w.web[2], w.web[2])
	})
}

// ask opens a session, which has its answer.
func (w *bounded) ask(at netip.AddrPort) {
	w.Helper()
	flow, err := netnstest.OpenFlow(w.Context(), w.client, netip.AddrPort{}, at)
	check(w, err)
	w.Cleanup(func() { check(w, flow.Close()) })
	_, err = flow.Ask(w.Context())
	check(w, err)
}

// expectSessions wants sessions at these frontends, in the order of their beginning.
func (w *bounded) expectSessions(want ...netip.AddrPort) {
	w.Helper()
	var got []netip.AddrPort
	found, _ := w.registry.Connections(0, 100, func(*userspace.Open) bool { return true })
	for _, o := range found {
		got = append(got, o.Place.At)
	}
	if !slices.Equal(got, want) {
		w.Errorf("sessions at %v, want %v", got, want)
	}
}

// TestKernelBounds_TotalSessionsFair: at the session limit of the process, a Service with the most sessions loses one,
// and a Service without a session is served.
func TestKernelBounds_TotalSessionsFair(t *testing.T) {
	eachBounded(t, service.UDP, userspace.Bounds{Sessions: 8, ConnectionsPerClient: 100}, func(w *bounded) {
		web, o := w.web[0], w.others
		for _, at := range []netip.AddrPort{o[0], web, web, o[1], o[1], o[2], o[2], o[3]} {
			w.ask(at)
		}
		w.expectSessions(o[0], web, web, o[1], o[1], o[2], o[2], o[3])
		w.write(w.want(listenerOf(service.UDP, w.cluster(99), append([]string{"of ns1/small"}, w.to(0)...)...)))
		w.ask(w.cluster(99))
		w.eventually("one of two makes room", func() bool { return len(w.said) > 0 })
		if said := <-w.said; said.Why != relay.TotalFull || said.Port.Service.Name == "db" || said.Port.Service.Name == "e" {
			w.Errorf("said %+v; db and e have one session each", said)
		}
		if s := w.forwarder.Stats(); s.Sessions.Load() != 8 || s.SessionsEvicted.Load() != 1 || s.ConnectionsRefused.Load() != 0 {
			w.Errorf("counted %+v", s)
		}
	})
}

// TestKernelBounds_ReserveForSmallServices: three Services with most of the connections leave a reserve for a Service
// that has none.
func TestKernelBounds_ReserveForSmallServices(t *testing.T) {
	eachBounded(t, service.TCP, userspace.Bounds{Connections: 40, ConnectionsPerClient: 100}, func(w *bounded) {
		for _, at := range w.others[:3] {
			for range 10 {
				w.connect(at)
			}
		}
		for range 6 {
			w.connect(w.web[0])
		}
		w.expectReset(w.web[0])
		w.expectSaid(userspace.Full{Port: w.port(service.TCP, "web", "http"), Why: relay.TotalFull, Open: 36, Most: 36}, 1)
		w.connect(w.others[3])
	})
}

// TestKernelBounds_Clients: each client is limited over all Services, and other clients are still served.
func TestKernelBounds_Clients(t *testing.T) {
	bounds := userspace.Bounds{Connections: 400, Sessions: 400, ConnectionsPerClient: 3}
	eachBounded(t, service.TCP, bounds, func(w *bounded) {
		w.connect(w.web[0])
		w.connect(w.web[1])
		w.connect(w.others[0])
		w.expectReset(w.others[1])
		w.expectReset(w.web[0])
		w.expectSaid(userspace.Full{Port: w.port(service.TCP, "c", ""), Why: relay.ClientFull, Open: 3, Most: 3}, 1)
		w.names(w.node, "tcp", w.web[0], 5) // another client
		w.registry.LimitClients(4)
		w.connect(w.others[1])
		w.expectReset(w.others[1])
	})
	eachBounded(t, service.UDP, bounds, func(w *bounded) {
		w.names(w.node, "udp", w.others[3], 1) // the oldest session, but another client's
		w.ask(w.web[0])
		w.ask(w.others[0])
		w.ask(w.others[1])
		w.ask(w.others[2])
		w.expectSessions(w.others[3], w.others[0], w.others[1], w.others[2])
		w.expectSaid(userspace.Full{Port: w.port(service.UDP, "web", "http"), Why: relay.ClientFull, Open: 3, Most: 3}, 1)
	})
}

// TestKernelBounds_Listeners: a listener beyond the limit is rejected alone, and is opened once there is room.
func TestKernelBounds_Listeners(t *testing.T) {
	for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
		t.Run(family.String(), func(t *testing.T) {
			w := newWorld(t, family, userspace.Config{Registry: userspace.NewRegistry(userspace.Bounds{Listeners: 1})})
			w.backend(0)
			first, second := listenerOf(service.TCP, w.cluster(80), w.to(0)...), w.want(listenerOf(service.TCP, w.cluster(81), w.to(0)...))
			second.Owner = service.Key{Namespace: "ns1", Name: "beyond"}
			for range 2 { // what is refused holds no place
				receipt := w.attempt(w.want(addressOf(addresses[family].cluster)), w.want(first), second)
				if receipt.Outcome != dataplane.Rejected || len(receipt.Suspects) != 1 || receipt.Suspects[0] != second.Owner ||
					!strings.Contains(receipt.Err.Error(), "listener limit reached (1): raise the file-descriptor limit (LimitNOFILE)") {
					w.Errorf("got %+v", receipt)
				}
				w.names(w.client, "tcp", w.cluster(80), 1)
			}
			w.write(w.gone(first))
			w.write(second)
			w.names(w.client, "tcp", w.cluster(81), 1)
		})
	}
}

// TestKernelBounds_ListenersPerService: each Service can have only a part of all listeners, and a listener that moves
// to another Service counts for that Service.
func TestKernelBounds_ListenersPerService(t *testing.T) {
	for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
		t.Run(family.String(), func(t *testing.T) {
			w := newWorld(t, family, userspace.Config{Registry: userspace.NewRegistry(userspace.Bounds{Listeners: 8})})
			w.backend(0)
			listener := func(of string, port uint16) *dataplane.Object {
				return listenerOf(service.TCP, w.cluster(port), append([]string{"of ns1/" + of}, w.to(0)...)...)
			}
			w.write(w.want(addressOf(addresses[family].cluster)), w.want(listener("big", 80)), w.want(listener("big", 81)))
			third := w.want(listener("big", 82))
			third.Owner = service.Key{Namespace: "ns1", Name: "big"}
			receipt := w.attempt(third, w.want(listener("other", 90)))
			if receipt.Outcome != dataplane.Rejected || len(receipt.Suspects) != 1 || receipt.Suspects[0] != third.Owner ||
				!strings.Contains(receipt.Err.Error(), "listener limit of one Service reached (2)") {
				w.Errorf("got %+v", receipt)
			}
			w.names(w.client, "tcp", w.cluster(90), 1)
			before, after := listener("big", 81), listener("other", 81)
			w.write(dataplane.Change{ID: after.ID, Before: before, After: after, Owner: w.owner})
			w.write(third)
			if receipt := w.attempt(w.want(listener("other", 91))); receipt.Outcome != dataplane.Rejected {
				w.Errorf("a listener that was taken over does not count: %+v", receipt)
			}
			w.write(w.gone(after), w.gone(listener("big", 80)))
			w.write(w.want(listener("other", 91)), w.want(listener("big", 80)))
		})
	}
}
