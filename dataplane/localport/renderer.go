package localport

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/listeners"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/service"
)

// Renderer implements [dataplane.Renderer] for one family: one listener for each TCP or UDP node
// port through which a client on this node can be served. Without endpoints there is no listener,
// so the host refuses clients at once.
//
// Listeners are elements: two Services may want one node port, and the ledger decides.
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

// NewRenderer returns a renderer of one family.
func NewRenderer(family service.Family) *Renderer {
	return &Renderer{family: family, listen: loopback[family]}
}

// Naming implements dataplane.Renderer: listeners have no leads.
func (r *Renderer) Naming() dataplane.Naming { return nil }

// Node renders nothing: every listener belongs to a Service.
func (*Renderer) Node(*service.NodeFacts) []dataplane.Object { return nil }

// Size implements dataplane.Renderer: there is at most one listener.
func (r *Renderer) Size(port service.PortSize, _ *service.NodeFacts) int {
	return port.Frontends(1) - port.Addresses
}

// Service renders one Service.
func (r *Renderer) Service(ctx context.Context, view *service.View, facts *service.NodeFacts) []dataplane.Object {
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
			objects = append(objects, object(relay.Place{Protocol: port.Protocol, At: listen}, target))
		}
	}
	return objects
}

// nodePortAddress returns the address of this node through which node ports are reached: its own
// one if node ports answer there, otherwise the first on which they answer; zero if none of them
// can be dialled. It reports false if node ports answer nowhere.
func (r *Renderer) nodePortAddress(facts *service.NodeFacts) (through netip.Addr, served bool) {
	own, on := facts.NodeIPs[r.family], facts.NodePorts[r.family]
	if (on.All || slices.Contains(on.Addresses, own)) && dialable(own) {
		return own, true
	}
	if at := slices.IndexFunc(on.Addresses, dialable); !on.All && at >= 0 {
		return on.Addresses[at], true
	}
	return netip.Addr{}, on.All || len(on.Addresses) > 0
}

// dialable reports whether a node port can be reached at an address. A loopback address would lead
// back here, and a link-local address means nothing without an interface.
func dialable(addr netip.Addr) bool {
	return addr.IsValid() && !addr.IsUnspecified() && !addr.IsLoopback() && !addr.IsLinkLocalUnicast()
}

// targetOf returns where to forward a port's node port, and false if nothing would answer there. A
// node port serves this node's own clients from all endpoints, with any externalTrafficPolicy, as
// in kube-proxy. The ClusterIP, which replaces an unknown node address, follows
// internalTrafficPolicy.
func targetOf(port *service.PortView, through netip.Addr) (netip.AddrPort, bool) {
	if through.IsValid() {
		return netip.AddrPortFrom(through, port.NodePort), port.HasAny && len(port.Cluster) > 0
	}
	return netip.AddrPortFrom(port.ClusterIP, port.Port), port.ClusterIP.IsValid() && port.ServesInternal()
}

// bodyPrefix begins every body; the target follows, for example "to 192.0.2.10:30080".
const bodyPrefix = "to "

// object returns a listener as an object.
func object(p relay.Place, target netip.AddrPort) dataplane.Object {
	return dataplane.Object{ID: listeners.ID(p), Kind: dataplane.Element, Body: bodyPrefix + target.String()}
}

// parseBody returns the target in an object's body. It rejects a target on the loopback interface:
// a listener would forward to itself in a loop.
func parseBody(text string) (netip.AddrPort, error) {
	rest, found := strings.CutPrefix(text, bodyPrefix)
	target, err := netip.ParseAddrPort(rest)
	if !found || err != nil || target.Addr().IsLoopback() {
		return target, fmt.Errorf("content %q: want %q and an address off the loopback interface, with a port",
			text, bodyPrefix)
	}
	return target, nil
}

// Target returns where the listener at an address forwards to, and false if there is none.
func Target(objects []dataplane.Object, protocol service.Protocol, at netip.AddrPort) (netip.AddrPort, bool) {
	for i := range objects {
		if objects[i].ID == listeners.ID(relay.Place{Protocol: protocol, At: at}) {
			target, err := parseBody(objects[i].Body)
			return target, err == nil
		}
	}
	return netip.AddrPort{}, false
}
