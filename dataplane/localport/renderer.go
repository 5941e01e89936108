package localport

import (
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Renderer implements [dataplane.Renderer] for one family: one listener for each
// node port over TCP or UDP that a client on this node can be served through.
// Without endpoints there is none, so that the host itself refuses, as it should.
//
// Listeners are elements: two Services may want one node port, and the ledger
// settles that as everywhere.
type Renderer struct {
	family service.Family
	listen netip.Addr
}

var _ dataplane.Renderer = (*Renderer)(nil)

// loopback holds the address that listeners of a family listen on.
var loopback = service.PerFamily[netip.Addr]{
	service.IPv4: netip.AddrFrom4([4]byte{127, 0, 0, 1}),
	service.IPv6: netip.IPv6Loopback(),
}

// Naming implements dataplane.Renderer: listeners are all on their own.
func (r *Renderer) Naming() dataplane.Naming { return nil }

// NewRenderer makes a renderer of one family.
func NewRenderer(family service.Family) *Renderer {
	return &Renderer{family: family, listen: loopback[family]}
}

// Service renders one Service.
func (r *Renderer) Service(view *service.View, facts *service.NodeFacts) []dataplane.Object {
	through, served := r.nodePortAddress(facts)
	if !served {
		return nil
	}
	var objects []dataplane.Object
	for i := range view.Ports[r.family] {
		port := &view.Ports[r.family][i]
		if port.NodePort == 0 || (port.Protocol != service.TCP && port.Protocol != service.UDP) {
			continue
		}
		if target, ok := targetOf(port, through); ok {
			listen := netip.AddrPortFrom(r.listen, port.NodePort)
			objects = append(objects, object(place{port.Protocol, listen}, target))
		}
	}
	return objects
}

// Node renders nothing: no listener belongs to nobody.
func (*Renderer) Node(*service.NodeFacts) []dataplane.Object { return nil }

// nodePortAddress gives the address of this node through which node ports are
// reached: its own one if node ports answer there, otherwise the first that they
// answer on; zero when none is known that can be dialled. It reports false when
// node ports answer nowhere.
func (r *Renderer) nodePortAddress(facts *service.NodeFacts) (through netip.Addr, served bool) {
	own, on := facts.NodeIPs[r.family], facts.NodePorts[r.family]
	if on.All || slices.Contains(on.Addresses, own) {
		if dialable(own) {
			return own, true
		}
	}
	if at := slices.IndexFunc(on.Addresses, dialable); !on.All && at >= 0 {
		return on.Addresses[at], true
	}
	return netip.Addr{}, on.All || len(on.Addresses) > 0
}

// dialable reports whether a node port can be reached at an address. Not on the
// loopback interface, which would lead back here, and not at link-local
// addresses, which mean nothing without an interface.
func dialable(addr netip.Addr) bool {
	return addr.IsValid() && !addr.IsUnspecified() && !addr.IsLoopback() && !addr.IsLinkLocalUnicast()
}

// targetOf gives where to forward a port's node port, and false when nobody would
// answer there. A node port serves this node's own clients from all endpoints,
// whatever externalTrafficPolicy says (kube-proxy's short cut); the ClusterIP,
// which stands in for it, goes by internalTrafficPolicy.
func targetOf(port *service.PortView, through netip.Addr) (netip.AddrPort, bool) {
	if through.IsValid() {
		return netip.AddrPortFrom(through, port.NodePort), port.HasAny && len(port.Cluster) > 0
	}
	return netip.AddrPortFrom(port.ClusterIP, port.Port), port.ServesInternal()
}
