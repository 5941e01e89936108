// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// small are a few flows: two frontends, and one port on two addresses.
var small = service.PerFamily[[]injected]{
	service.IPv4: {
		udp("192.0.2.2:1", clusterIP, endpointA),
		udp("192.0.2.2:2", clusterIP, endpointB),
		udp("192.0.2.2:3", external, endpointA),
		udp("192.0.2.2:4", onNode, endpointA),
		{unix.IPPROTO_TCP, at("192.0.2.2:5"), at(clusterIP), at(endpointA), at("192.0.2.2:5")},
	},
	service.IPv6: {
		udp("[2001:db8::2]:1", "[fd96::10]:53", "[fd10::2]:5353"),
		udp("[2001:db8::2]:2", "[fd96::10]:53", "[fd10::3]:5353"),
		udp("[2001:db8::2]:3", "[2001:db8:7::7]:53", "[fd10::2]:5353"),
		udp("[2001:db8::2]:4", "[2001:db8:1::1]:30053", "[fd10::2]:5353"),
		{unix.IPPROTO_TCP, at("[2001:db8::2]:5"), at("[fd96::10]:53"), at("[fd10::2]:5353"), at("[2001:db8::2]:5")},
	},
}

func udp(client, destination, answerer string) injected {
	return injected{protocolUDP, at(client), at(destination), at(answerer), at(client)}
}

// seen is what the kernel listed.
type seen struct {
	destinations []netip.AddrPort
	identities   [][]byte
}

func (n *netfilter) all(t *testing.T, only filter) (s seen, honoured bool) {
	t.Helper()
	honoured, err := n.flows(t.Context(), only, func(f *flow) error {
		s.destinations = append(s.destinations, f.destination)
		s.identities = append(s.identities, slices.Clone(f.identity))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, honoured
}

// newSmall returns the kernel's table in a namespace with a few flows.
func newSmall(t *testing.T, family service.Family) *netfilter {
	t.Helper()
	node := newNode(t)
	inject(t, node, family, small[family])
	n := &netfilter{family: family, inside: node.Do}
	t.Cleanup(func() {
		if err := n.close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func TestKernelNetfilter_Filters(t *testing.T) {
	for _, family := range service.Families {
		flows := small[family]
		for name, tt := range map[string]struct {
			to    destination
			shown int
		}{
			"everything":            {destination{}, 5},
			"all of UDP":            {destination{protocol: protocolUDP}, 4},
			"ClusterIP":             {udpTo(flows[0].destination), service.PerFamily[int]{2, 3}[family]},
			"ClusterIP, every port": {destination{addr: flows[0].destination.Addr()}, service.PerFamily[int]{3, 5}[family]},
			"external IP":           {udpTo(flows[2].destination), service.PerFamily[int]{1, 3}[family]},
			"node port":             {udpTo(nodePort(30053)), 1},
			"TCP":                   {destination{port: 53, protocol: unix.IPPROTO_TCP}, 1},
			"nobody's":              {udpTo(nodePort(30054)), 0},
			"nobody's either":       {udpTo(netip.AddrPortFrom(flows[0].destination.Addr(), 99)), 0},
		} {
			t.Run(family.String()+" "+name, func(t *testing.T) {
				n := newSmall(t, family)
				only := filterFor(tt.to)
				s, honoured := n.all(t, only)
				if len(s.destinations) != tt.shown || !honoured {
					t.Errorf("shown are %v (honoured: %v), want %d flows", s.destinations, honoured, tt.shown)
				}
				n.filterless = true
				if s, honoured = n.all(t, only); len(s.destinations) != len(flows) || honoured != (only == filter{}) {
					t.Errorf("without filters, shown are %v (honoured: %v), want %d flows", s.destinations, honoured, len(flows))
				}
			})
		}
	}
}

func TestKernelNetfilter_Remove(t *testing.T) {
	for _, family := range service.Families {
		n := newSmall(t, family)
		s, _ := n.all(t, filter{destination: destination{protocol: protocolUDP}})
		outcomes, err := n.remove(s.identities[:1])
		if err != nil || outcomes[0] != nil {
			t.Errorf("%v: %v, %v", family, outcomes, err)
		}
		// Those that exist go, whatever became of the others.
		outcomes, err = n.remove(s.identities[:3])
		if err != nil || !errors.Is(outcomes[0], errGone) || outcomes[1] != nil || outcomes[2] != nil {
			t.Errorf("%v: %v, %v", family, outcomes, err)
		}
		left, _ := n.all(t, filter{destination: destination{protocol: protocolUDP}})
		if len(left.destinations) != 1 || left.destinations[0] != s.destinations[3] {
			t.Errorf("%v: left are %v", family, left.destinations)
		}
	}
}

// TestKernelNetfilter_RemovesNothingElse: a request with another number or another zone removes no flow with the same
// tuple.
func TestKernelNetfilter_RemovesNothingElse(t *testing.T) {
	n := newSmall(t, service.IPv4)
	s, _ := n.all(t, filter{destination: destination{protocol: protocolUDP}})
	other := netlink.AppendBytes(nil, attrOriginal, netlink.Find(s.identities[0], attrOriginal).Data)
	number := slices.Clone(netlink.Find(s.identities[0], attrID).Data)
	number[0] ^= 1
	zoned := netlink.AppendBytes(slices.Clone(other), attrZone, []byte{0, 7})
	other = netlink.AppendBytes(other, attrID, number)
	outcomes, err := n.remove([][]byte{other, zoned})
	if err != nil || !errors.Is(outcomes[0], errGone) || !errors.Is(outcomes[1], errGone) {
		t.Errorf("%v, %v", outcomes, err)
	}
	if left, _ := n.all(t, filter{destination: destination{protocol: protocolUDP}}); len(left.destinations) != 4 {
		t.Errorf("left are %v", left.destinations)
	}
}

// TestKernelNetfilter_ListingEndsWithContext: a listing ends with its context.
func TestKernelNetfilter_ListingEndsWithContext(t *testing.T) {
	n := newSmall(t, service.IPv4)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.flows(ctx, filter{}, func(*flow) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestKernelNetfilter_FailuresAreReported: if the namespace cannot be entered, listing, removing and reading addresses
// return the error.
func TestKernelNetfilter_FailuresAreReported(t *testing.T) {
	outside := errors.New("no way in")
	n := &netfilter{inside: func(func() error) error { return outside }}
	_, listErr := n.flows(t.Context(), filter{}, func(*flow) error { return nil })
	_, removeErr := n.remove([][]byte{nil})
	_, addressErr := n.addresses()
	for what, err := range map[string]error{"flows": listErr, "remove": removeErr, "addresses": addressErr} {
		if !errors.Is(err, outside) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// injected is a flow that a test puts into the kernel's table as translation would have
// left it.
type injected struct {
	protocol                              uint8
	client, destination, answerer, source netip.AddrPort
}

// inject makes flows in a namespace.
func inject(t testing.TB, n *netns.Namespace, family service.Family, flows []injected) {
	t.Helper()
	err := n.Do(func() error {
		s, err := netlink.Open(netlink.Config{Protocol: unix.NETLINK_NETFILTER})
		if err != nil {
			return err
		}
		defer s.Close() // everything was acknowledged
		const perRequest = 256
		for len(flows) > 0 {
			some := flows[:min(perRequest, len(flows))]
			flows = flows[len(some):]
			var request []byte
			for i := range some {
				request = appendInjected(request, family, &some[i], i == len(some)-1)
			}
			var refused error
			err := s.Exchange(request, func(_ int, a netlink.Answer) { refused = errors.Join(refused, a.Err()) })
			if err := errors.Join(err, refused); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("inject flows: %v", err)
	}
}

func appendInjected(b []byte, family service.Family, f *injected, last bool) []byte {
	const (
		messageNew    = 0 // IPCTNL_MSG_CT_NEW
		attrStatus    = 3 // CTA_STATUS
		attrTimeout   = 7 // CTA_TIMEOUT
		confirmed     = 1 << 3
		seenReply     = 1 << 1
		assured       = 1 << 2
		timeoutSecond = 600
	)
	flags := uint16(unix.NLM_F_CREATE | unix.NLM_F_EXCL)
	if last {
		flags |= unix.NLM_F_ACK
	}
	b, mark := (&netfilter{family: family}).begin(b, messageNew, flags)
	b = appendTuple(b, attrOriginal, family, f.protocol, f.client, f.destination)
	b = appendTuple(b, attrReply, family, f.protocol, f.answerer, f.source)
	b = netlink.AppendUint32(b, attrStatus, confirmed|seenReply|assured)
	b = netlink.AppendUint32(b, attrTimeout, timeoutSecond)
	return netlink.Finish(b, mark)
}

func appendTuple(b []byte, kind uint16, family service.Family, protocol uint8, source, destination netip.AddrPort) []byte {
	b, tuple := netlink.Nest(b, kind|nested)
	b, ip := netlink.Nest(b, attrTupleIP|nested)
	b = netlink.AppendBytes(b, layouts[family].source, source.Addr().AsSlice())
	b = netlink.AppendBytes(b, layouts[family].destination, destination.Addr().AsSlice())
	b, ports := netlink.Nest(netlink.End(b, ip), attrTupleProtocol|nested)
	b = netlink.AppendUint8(b, attrProtocol, protocol)
	b = netlink.AppendUint16(b, attrSourcePort, source.Port())
	b = netlink.AppendUint16(b, attrDestinationPort, destination.Port())
	return netlink.End(netlink.End(b, ports), tuple)
}

// count returns the number of flows in a namespace.
func count(t testing.TB, n *netns.Namespace) int {
	t.Helper()
	text, err := netnstest.ReadSysctl(n, "net.netfilter.nf_conntrack_count")
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// newNode makes a namespace in which flows are tracked.
func newNode(t testing.TB) *netns.Namespace {
	t.Helper()
	n := netnstest.New(t, "node")
	return n
}
