package userspace_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/service"
)

// bounded is a world with bounds of 8 connections and 8 sessions, 2 of each for one Service. Each of
// five Services has a frontend; the first has three, of two Service ports.
type bounded struct {
	*world
	said chan userspace.Full
	web  []netip.AddrPort
	// others are the frontends of other Services.
	others []netip.AddrPort
}

func eachBounded(t *testing.T, protocol service.Protocol, test func(w *bounded)) {
	for _, family := range service.Families {
		t.Run(family.String(), func(t *testing.T) {
			w := &bounded{said: make(chan userspace.Full, 100)}
			w.world = newWorld(t, family, userspace.Config{Registry: userspace.NewRegistry(userspace.Bounds{
				Connections: 8, Sessions: 8, Full: func(f userspace.Full) { w.said <- f },
			}, nil)})
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
func (w *bounded) expectSaid(want userspace.Full, why relay.Refusal, refused uint64) {
	w.Helper()
	w.eventually("a bound is said", func() bool { return len(w.said) > 0 })
	if got := <-w.said; got != want || len(w.said) != 0 {
		w.Errorf("said %+v and %d more, want %+v", got, len(w.said), want)
	}
	var counted uint64
	for _, t := range w.registry.Traffic(want.Port.Service) {
		counted += t.Refused[why]
	}
	if counted != refused {
		w.Errorf("%d clients of %v are counted as %v, want %d", counted, want.Port.Service, why, refused)
	}
}

func (w *bounded) port(protocol service.Protocol, of, name string) userspace.PortID {
	return userspace.PortID{Service: service.Key{Namespace: "ns1", Name: of}, Name: name, Protocol: protocol, Family: w.family}
}

// connect opens connections that stay open.
func (w *bounded) connect(at netip.AddrPort) {
	w.Helper()
	session, err := w.client.Connect(w.Context(), at)
	check(w, err)
	w.Cleanup(func() { _ = session.Close() }) // the forwarder may have ended it
}

// TestKernelBoundsAreThoseOfTheService: the sum over its frontends and ports. Other Services are
// served beside it, until the bound of all.
func TestKernelBoundsAreThoseOfTheService(t *testing.T) {
	eachBounded(t, service.TCP, func(w *bounded) {
		w.connect(w.web[0])
		w.connect(w.web[1])
		for _, at := range w.web {
			w.expectReset(at)
		}
		w.expectSaid(userspace.Full{Port: w.port(service.TCP, "web", "http"), Open: 2, Most: 2}, relay.PartFull, 3)
		for _, at := range w.others[:3] {
			w.connect(at)
			w.connect(at)
		}
		w.expectReset(w.others[3])
		w.expectReset(w.others[3])
		w.expectSaid(userspace.Full{Port: w.port(service.TCP, "e", ""), Total: true, Open: 8, Most: 8}, relay.TotalFull, 2)
		w.write(w.gone(listenerOf(service.TCP, w.others[0])))
		w.expectReset(w.others[3]) // connections of a listener that has gone still count
	})
}

// TestKernelSessionsAreBoundedByService: a further client replaces the least active session of the
// Service, at whichever frontend, and no other Service's.
func TestKernelSessionsAreBoundedByService(t *testing.T) {
	eachBounded(t, service.UDP, func(w *bounded) {
		ask := func(at netip.AddrPort) {
			w.Helper()
			flow, err := w.client.OpenFlow(w.Context(), netip.AddrPort{}, at)
			check(w, err)
			w.Cleanup(func() { check(w, flow.Close()) })
			_, err = flow.Ask(w.Context())
			check(w, err)
		}
		open := func() (at []netip.AddrPort) {
			found, _ := w.registry.Connections(0, 100, func(*userspace.Open) bool { return true })
			for _, o := range found {
				at = append(at, o.Place.At)
			}
			return at
		}
		expect := func(want ...netip.AddrPort) {
			w.Helper()
			if got := open(); !slices.Equal(got, want) {
				w.Errorf("sessions at %v, want %v", got, want)
			}
		}
		ask(w.others[0])
		ask(w.web[0])
		ask(w.web[1])
		expect(w.others[0], w.web[0], w.web[1])
		ask(w.web[2])
		expect(w.others[0], w.web[1], w.web[2])
		w.expectSaid(userspace.Full{Port: w.port(service.UDP, "web", "admin"), Open: 2, Most: 2}, relay.Replaced, 1)
		ask(w.web[2])
		expect(w.others[0], w.web[2], w.web[2])
	})
}

// TestKernelListenersAreBounded: a Service beyond the bound is refused alone, and served once there
// is room.
func TestKernelListenersAreBounded(t *testing.T) {
	for _, family := range service.Families {
		t.Run(family.String(), func(t *testing.T) {
			w := newWorld(t, family, userspace.Config{Registry: userspace.NewRegistry(userspace.Bounds{Listeners: 1}, nil)})
			w.backend(0)
			first, second := listenerOf(service.TCP, w.cluster(80), w.to(0)...), w.want(listenerOf(service.TCP, w.cluster(81), w.to(0)...))
			second.Owner = service.Key{Namespace: "ns1", Name: "beyond"}
			for range 2 { // what is refused holds no place
				receipt := w.attempt(w.want(addressOf(addresses[family].cluster)), w.want(first), second)
				if receipt.Outcome != dataplane.Rejected || len(receipt.Suspects) != 1 || receipt.Suspects[0] != second.Owner ||
					!strings.Contains(receipt.Err.Error(), "this process has 1 listeners, as many as its limit of descriptors allows") {
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
