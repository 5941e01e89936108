// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/conntracktest"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// small are a few flows: two frontends, and one port on two addresses.
var small = service.PerFamily[[]conntracktest.Tracked]{
	service.IPv4: {
		udp("192.0.2.2:1", clusterIP, endpointA),
		udp("192.0.2.2:2", clusterIP, endpointB),
		udp("192.0.2.2:3", external, endpointA),
		udp("192.0.2.2:4", onNode, endpointA),
		{Protocol: unix.IPPROTO_TCP, Client: at("192.0.2.2:5"), Destination: at(clusterIP), Answerer: at(endpointA), Source: at("192.0.2.2:5")},
	},
	service.IPv6: {
		udp("[2001:db8::2]:1", "[fd96::10]:53", "[fd10::2]:5353"),
		udp("[2001:db8::2]:2", "[fd96::10]:53", "[fd10::3]:5353"),
		udp("[2001:db8::2]:3", "[2001:db8:7::7]:53", "[fd10::2]:5353"),
		udp("[2001:db8::2]:4", "[2001:db8:1::1]:30053", "[fd10::2]:5353"),
		{Protocol: unix.IPPROTO_TCP, Client: at("[2001:db8::2]:5"), Destination: at("[fd96::10]:53"), Answerer: at("[fd10::2]:5353"), Source: at("[2001:db8::2]:5")},
	},
}

// Where the Service of these tests is.
const (
	clusterIP = "10.96.0.10:53"
	external  = "198.51.100.7:53"
	onNode    = "192.0.2.1:30053"
	endpointA = "10.0.2.2:5353"
	endpointB = "10.0.2.3:5353"
)

func at(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

// udpTo returns a destination of UDP.
func udpTo(text string) Destination { return destination(at(text), unix.IPPROTO_UDP) }

// udpNodePort returns a node port of UDP.
func udpNodePort(port uint16) Destination { return Destination{Port: port, Protocol: unix.IPPROTO_UDP} }

func udp(client, destination, answerer string) conntracktest.Tracked {
	return conntracktest.Tracked{Protocol: unix.IPPROTO_UDP, Client: at(client), Destination: at(destination), Answerer: at(answerer), Source: at(client)}
}

// seen is what the kernel listed.
type seen struct {
	destinations []netip.AddrPort
	identities   []Description
}

func (k *Kernel) all(t *testing.T, only Filter) (s seen, honoured bool) {
	t.Helper()
	honoured, err := k.Each(t.Context(), only, func(e *Entry) error {
		s.destinations = append(s.destinations, e.To)
		s.identities = append(s.identities, slices.Clone(e.Description))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, honoured
}

// newSmall returns the kernel's table in a namespace with a few flows.
func newSmall(t *testing.T, family service.Family) *Kernel {
	t.Helper()
	node := netnstest.New(t, "node")
	conntracktest.Inject(t, node, small[family])
	n := &Kernel{Family: family, Inside: node.Do}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// TestKernel_Filters: the kernel lists the flows that match a filter. A kernel without filters lists all flows.
func TestKernel_Filters(t *testing.T) {
	for _, family := range service.Families {
		flows := small[family]
		for name, tt := range map[string]struct {
			to    Destination
			shown int
		}{
			"everything":            {Destination{}, 5},
			"all of UDP":            {Destination{Protocol: unix.IPPROTO_UDP}, 4},
			"ClusterIP":             {destination(flows[0].Destination, unix.IPPROTO_UDP), service.PerFamily[int]{2, 3}[family]},
			"ClusterIP, every port": {Destination{Addr: flows[0].Destination.Addr()}, service.PerFamily[int]{3, 5}[family]},
			"external IP":           {destination(flows[2].Destination, unix.IPPROTO_UDP), service.PerFamily[int]{1, 3}[family]},
			"node port":             {udpNodePort(30053), 1},
			"TCP":                   {Destination{Port: 53, Protocol: unix.IPPROTO_TCP}, 1},
			"nobody's":              {udpNodePort(30054), 0},
			"nobody's either":       {destination(netip.AddrPortFrom(flows[0].Destination.Addr(), 99), unix.IPPROTO_UDP), 0},
		} {
			t.Run(family.String()+" "+name, func(t *testing.T) {
				n := newSmall(t, family)
				only := FilterFor(tt.to)
				s, honoured := n.all(t, only)
				if len(s.destinations) != tt.shown || !honoured {
					t.Errorf("shown are %v (honoured: %v), want %d flows", s.destinations, honoured, tt.shown)
				}
				n.filterless = true
				if s, honoured = n.all(t, only); len(s.destinations) != len(flows) || honoured != (only == Filter{}) {
					t.Errorf("without filters, shown are %v (honoured: %v), want %d flows", s.destinations, honoured, len(flows))
				}
			})
		}
	}
}

// TestKernel_Remove: Delete deletes the flows that still exist, and reports the others as gone.
func TestKernel_Remove(t *testing.T) {
	for _, family := range service.Families {
		n := newSmall(t, family)
		s, _ := n.all(t, Filter{Destination: Destination{Protocol: unix.IPPROTO_UDP}})
		outcomes, err := n.Delete(s.identities[:1])
		if err != nil || outcomes[0] != nil {
			t.Errorf("%v: %v, %v", family, outcomes, err)
		}
		// Those that exist go, whatever became of the others.
		outcomes, err = n.Delete(s.identities[:3])
		if err != nil || !errors.Is(outcomes[0], ErrGone) || outcomes[1] != nil || outcomes[2] != nil {
			t.Errorf("%v: %v, %v", family, outcomes, err)
		}
		left, _ := n.all(t, Filter{Destination: Destination{Protocol: unix.IPPROTO_UDP}})
		if len(left.destinations) != 1 || left.destinations[0] != s.destinations[3] {
			t.Errorf("%v: left are %v", family, left.destinations)
		}
	}
}

// TestKernel_RemovesNothingElse: a request with another number or another zone removes no flow with the same tuple.
func TestKernel_RemovesNothingElse(t *testing.T) {
	n := newSmall(t, service.IPv4)
	s, _ := n.all(t, Filter{Destination: Destination{Protocol: unix.IPPROTO_UDP}})
	other := netlink.AppendBytes(nil, attrOriginal, netlink.Find(s.identities[0], attrOriginal).Data)
	number := slices.Clone(netlink.Find(s.identities[0], attrID).Data)
	number[0] ^= 1
	zoned := netlink.AppendBytes(slices.Clone(other), attrZone, []byte{0, 7})
	other = netlink.AppendBytes(other, attrID, number)
	outcomes, err := n.Delete([]Description{other, zoned})
	if err != nil || !errors.Is(outcomes[0], ErrGone) || !errors.Is(outcomes[1], ErrGone) {
		t.Errorf("%v, %v", outcomes, err)
	}
	if left, _ := n.all(t, Filter{Destination: Destination{Protocol: unix.IPPROTO_UDP}}); len(left.destinations) != 4 {
		t.Errorf("left are %v", left.destinations)
	}
}

// TestKernel_ListingEndsWithContext: a listing ends with its context.
func TestKernel_ListingEndsWithContext(t *testing.T) {
	n := newSmall(t, service.IPv4)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.Each(ctx, Filter{}, func(*Entry) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestKernel_FailuresAreReported: if the namespace cannot be entered, listing and removing return the error.
func TestKernel_FailuresAreReported(t *testing.T) {
	outside := errors.New("no way in")
	n := &Kernel{Inside: func(func() error) error { return outside }}
	_, listErr := n.Each(t.Context(), Filter{}, func(*Entry) error { return nil })
	_, removeErr := n.Delete([]Description{nil})
	for what, err := range map[string]error{"flows": listErr, "remove": removeErr} {
		if !errors.Is(err, outside) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestKernelDeleteUDP: DeleteUDP deletes the translated flows to a destination, and no others.
func TestKernelDeleteUDP(t *testing.T) {
	for _, family := range service.Families {
		k, flows := newSmall(t, family), small[family]
		remove := func(want int, what string) {
			t.Helper()
			n, err := DeleteUDP(t.Context(), family, func(c *Connection) bool {
				if !c.From.IsValid() || c.From.Port() == 0 || c.Protocol != unix.IPPROTO_UDP {
					t.Errorf("a flow of %v", c.From)
				}
				return c.Translated() && c.To == flows[0].Destination
			}, k.Inside)
			if err != nil || n != want {
				t.Errorf("%s: %d flows, want %d: %v", what, n, want, err)
			}
		}
		remove(2, "at first")
		remove(0, "again")
		left, _ := k.all(t, Filter{})
		if !slices.Contains(left.destinations, flows[2].Destination) || len(left.destinations) != len(flows)-2 {
			t.Errorf("%v: left are %v", family, left.destinations)
		}
	}
}
