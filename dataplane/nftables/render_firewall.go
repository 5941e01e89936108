package nftables

import (
	"net/netip"
	"slices"
)

// renderFirewall lets nobody but the source ranges reach the load balancer VIPs.
func (p *portDraft) renderFirewall() {
	if len(p.port.SourceRanges) == 0 {
		return
	}
	allowed := p.port.SourceRanges
	if p.port.NodeInSourceRanges {
		// The node that uses a VIP as its source is still the node.
		allowed = slices.Clone(allowed)
		for _, vip := range p.port.LoadBalancerVIPs {
			allowed = append(allowed, netip.PrefixFrom(vip, vip.BitLen()))
		}
	}
	allowed = outermost(allowed)
	for _, vip := range p.port.LoadBalancerVIPs {
		f := frontend{vip, p.port.Port}
		p.named(setFirewalled, f, p.comment)
		for _, prefix := range allowed {
			name := p.put(func(b []byte) []byte {
				b = appendAddr(p.appendFrontend(b, f), prefix.Addr())
				return appendAddr(p.appendFrontend(b, f), lastOf(prefix))
			})
			p.element(containers[setAllowed], name, p.comment, setRefs[setAllowed])
		}
	}
}

// outermost leaves out the prefixes that are inside another one: the kernel
// refuses ranges that overlap.
func outermost(prefixes []netip.Prefix) []netip.Prefix {
	sorted := make([]netip.Prefix, 0, len(prefixes))
	for _, p := range prefixes {
		sorted = append(sorted, p.Masked())
	}
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	var kept []netip.Prefix
	for _, p := range sorted {
		// Sorted, what holds a prefix comes before it, and nothing kept
		// overlaps: only the last one can.
		if n := len(kept); n == 0 || !kept[n-1].Overlaps(p) {
			kept = append(kept, p)
		}
	}
	return kept
}

// lastOf gives the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}
