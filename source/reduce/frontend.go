package reduce

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/service"
)

// externalIPs reduces spec.externalIPs. The API server has let anything in, so
// blank entries are not worth a word.
func externalIPs(n *notes, texts []string) service.PerFamily[[]netip.Addr] {
	var found service.PerFamily[[]netip.Addr]
	for i, text := range texts {
		addr, ok := parseAddr(text)
		switch {
		case ok:
			addAddr(&found, addr)
		case strings.TrimSpace(text) != "":
			n.add(at("spec.externalIPs", i), "%q is not an IP address; the entry is skipped", text)
		}
	}
	return found
}

// loadBalancerVIPs reduces status.loadBalancer.ingress. Entries in mode Proxy are
// left to the balancer: traffic from inside the cluster must reach it.
func loadBalancerVIPs(n *notes, ingress []corev1.LoadBalancerIngress) service.PerFamily[[]netip.Addr] {
	const list = "status.loadBalancer.ingress"
	var found service.PerFamily[[]netip.Addr]
	for i := range ingress {
		entry := &ingress[i]
		if entry.IP == "" {
			continue
		}
		if mode := entry.IPMode; mode != nil && *mode != corev1.LoadBalancerIPModeVIP {
			if *mode != corev1.LoadBalancerIPModeProxy {
				n.add(at(list, i).dot("ipMode"), "%q is not a known mode; the entry is skipped", *mode)
			}
			continue
		}
		if addr, ok := parseAddr(entry.IP); ok {
			addAddr(&found, addr)
		} else {
			n.add(at(list, i).dot("ip"), "%q is not an IP address; the entry is skipped", entry.IP)
		}
	}
	return found
}

// sourceRanges reduces spec.loadBalancerSourceRanges. A family without a usable
// range is open to everyone, and so is one in which a range covers everyone.
func sourceRanges(n *notes, texts []string) service.PerFamily[[]netip.Prefix] {
	const list = "spec.loadBalancerSourceRanges"
	var found service.PerFamily[[]netip.Prefix]
	var everyone service.PerFamily[bool]
	usable, refused := 0, 0
	for i, text := range texts {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		prefix, ok := parsePrefix(text)
		if !ok {
			refused++
			n.add(at(list, i), "%q is not a CIDR; the entry is skipped", text)
			continue
		}
		usable++
		family := service.FamilyOf(prefix.Addr())
		everyone[family] = everyone[family] || prefix.Bits() == 0
		if !slices.Contains(found[family], prefix) {
			found[family] = append(found[family], prefix)
		}
	}
	if usable == 0 && refused > 0 {
		n.add(field(list), "no entry can be used; every source is allowed")
	}
	for _, family := range service.Families {
		if everyone[family] {
			found[family] = nil
		}
	}
	return found
}

// addAddr appends an address to those of its family unless it is there.
func addAddr(to *service.PerFamily[[]netip.Addr], addr netip.Addr) {
	family := service.FamilyOf(addr)
	if !slices.Contains(to[family], addr) {
		to[family] = append(to[family], addr)
	}
}
