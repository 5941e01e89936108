package nftables

import (
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

// TestLoopbackAddressesAreNotTranslated: a packet to one would be lost in the
// kernel before it came to a listener (docs/adr/0007).
func TestLoopbackAddressesAreNotTranslated(t *testing.T) {
	for family, addrs := range map[service.Family][2]string{
		service.IPv4: {"127.0.0.1", "192.0.2.10"}, service.IPv6: {"::1", "2001:db8::10"},
	} {
		facts := &service.NodeFacts{}
		for _, a := range addrs {
			facts.NodePorts[family].Addresses = append(facts.NodePorts[family].Addresses, netip.MustParseAddr(a))
		}
		var listed []string
		for _, o := range NewRenderer(family, Options{}).Node(facts) {
			if o.ID.Container == elementsOf+setNodePortAddresses {
				listed = append(listed, o.ID.Name)
			}
		}
		if want := string(netip.MustParseAddr(addrs[1]).AsSlice()); len(listed) != 1 || listed[0] != want {
			t.Errorf("%s: listed %x, want %x alone", family, listed, want)
		}
	}
}
