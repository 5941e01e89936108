package ipvs

import (
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/ipset"
	"github.com/sluice-proxy/sluice/service"
)

// draft gathers the objects of one Service.
type draft struct {
	renderer *Renderer
	facts    *service.NodeFacts
	objects  []dataplane.Object
}

// addressRefs is what an address needs.
var addressRefs = []dataplane.ID{DeviceID}

// bind makes an address local to the node. Ports of one Service that share it make
// equal objects.
func (d *draft) bind(addr netip.Addr) {
	d.objects = append(d.objects, dataplane.Object{ID: AddressID(addr), Kind: dataplane.Element, Refs: addressRefs})
	d.entry(setIPs, ipset.Entry{Addr: addr})
}

// entry adds an entry to a set, which is called by its name in IPv4.
func (d *draft) entry(set string, e ipset.Entry) {
	d.objects = append(d.objects, d.renderer.sets[set].object(e))
}

func portEntry(port uint16) ipset.Entry { return ipset.Entry{Port: port} }

// hosts tells whether an address is one of the node's, apart from those of the
// device.
func (d *draft) hosts(addr netip.Addr) bool {
	_, found := slices.BinarySearchFunc(d.facts.NodePorts[d.renderer.family].Host, addr, netip.Addr.Compare)
	return found
}

// nodePortAddrs gives the addresses on which node ports answer. Those of loopback
// cannot be among them, since answers cannot leave it; nor can link-local ones in
// IPv6, which mean nothing without an interface.
func (d *draft) nodePortAddrs() []netip.Addr {
	ports := d.facts.NodePorts[d.renderer.family]
	if ports.All {
		return ports.Host
	}
	var addrs []netip.Addr
	for _, a := range ports.Addresses {
		if !a.IsLoopback() && (a.Is4() || !a.IsLinkLocalUnicast()) {
			addrs = append(addrs, a)
		}
	}
	return addrs
}
