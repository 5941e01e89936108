package proxy

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sluice-proxy/sluice/service"
)

// facts combines what is configured, what the Node object says and what the
// host's interfaces carry into service.NodeFacts, and hands them out whole.
//
// The lock guards the inputs; readers take the finished value without it.
type facts struct {
	current atomic.Pointer[service.NodeFacts]

	mu       sync.Mutex
	settings NodeSettings
	node     *service.NodeObject
	hosts    []netip.Addr
	cidrs    []netip.Prefix
}

func newFacts(settings NodeSettings) *facts {
	f := &facts{settings: settings}
	f.current.Store(f.combine())
	return f
}

// update changes the inputs, and reports whether that has changed current: anything
// that rules depend on. What readers find in current never goes back to older
// inputs, however many goroutines update.
func (f *facts) update(change func(*facts)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
	next := f.combine()
	if next.Equal(f.current.Load()) {
		return false
	}
	f.current.Store(next)
	return true
}

// nodeObject gives the Node as it was seen last; nil while it has not been.
func (f *facts) nodeObject() *service.NodeObject {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.node
}

func (f *facts) combine() *service.NodeFacts { return f.settings.Facts(f.node, f.hosts, f.cidrs) }

// Facts combines the settings with what the Node object says (nil while it is not
// known), the addresses of the host's interfaces and the ranges of ClusterIPs.
func (s NodeSettings) Facts(node *service.NodeObject, hosts []netip.Addr, cidrs []netip.Prefix) *service.NodeFacts {
	n := &service.NodeFacts{Name: s.Name, MasqueradeAll: s.MasqueradeAll, LocalhostNodePorts: s.LocalhostNodePorts}
	if node != nil {
		n.Zone = node.Zone
		for _, a := range node.Addresses {
			if family := service.FamilyOf(a); !n.NodeIPs[family].IsValid() {
				n.NodeIPs[family] = a
			}
		}
	}
	if s.Address.IsValid() && !s.Address.IsUnspecified() {
		n.NodeIPs[service.FamilyOf(s.Address)] = s.Address
	}
	for _, c := range cidrs {
		family := service.FamilyOf(c.Addr())
		n.ServiceCIDRs[family] = append(n.ServiceCIDRs[family], c)
	}
	for _, family := range service.Families {
		n.Detect[family] = s.detector(family, node)
		n.NodePorts[family] = nodePorts(family, s, n.NodeIPs[family], hosts)
		if s.HostAddresses {
			n.NodePorts[family].Host = outward(family, hosts)
		}
	}
	return n
}

// nodePorts gives the addresses on which node ports of a family answer.
func nodePorts(family service.Family, s NodeSettings, own netip.Addr, hosts []netip.Addr) service.NodePortAddresses {
	if s.NodePortPrimary && own.IsValid() {
		return service.NodePortAddresses{Addresses: []netip.Addr{own}}
	}
	var ranges []netip.Prefix
	for _, r := range s.NodePortRanges {
		if service.FamilyOf(r.Addr()) == family {
			ranges = append(ranges, r)
		}
	}
	if len(ranges) == 0 || slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Bits() == 0 }) {
		return service.NodePortAddresses{All: true}
	}
	var served []netip.Addr
	for _, a := range hosts {
		if service.FamilyOf(a) != family || (a.IsLoopback() && (family == service.IPv6 || !s.LocalhostNodePorts)) {
			continue
		}
		if slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) }) {
			served = append(served, a)
		}
	}
	slices.SortFunc(served, netip.Addr.Compare)
	return service.NodePortAddresses{Addresses: slices.Compact(served)}
}

// outward gives the addresses of a family at which others can reach the host:
// neither loopback nor IPv6 link-local.
func outward(family service.Family, hosts []netip.Addr) []netip.Addr {
	var found []netip.Addr
	for _, a := range hosts {
		if service.FamilyOf(a) == family && !a.IsLoopback() && (family == service.IPv4 || !a.IsLinkLocalUnicast()) {
			found = append(found, a)
		}
	}
	slices.SortFunc(found, netip.Addr.Compare)
	return slices.Compact(found)
}
