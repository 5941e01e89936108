package reduce

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/service"
)

// clusterIPs finds the ClusterIP of each family. A Service that lists its
// families has its addresses in the same order; an object from before
// dual-stack has one address, which speaks for itself.
func clusterIPs(n *notes, spec *corev1.ServiceSpec) service.PerFamily[netip.Addr] {
	var found service.PerFamily[netip.Addr]
	if len(spec.IPFamilies) == 0 {
		if addr, ok := parseAddr(spec.ClusterIP); ok {
			found[service.FamilyOf(addr)] = addr
		} else {
			n.add(field("spec.clusterIP"), "%q is not an IP address; the Service is not served", spec.ClusterIP)
		}
		return found
	}
	for i, name := range spec.IPFamilies {
		family, ok := familyOf(name)
		if !ok {
			n.add(at("spec.ipFamilies", i), "%q is not an IP family; the entry is skipped", name)
			continue
		}
		if i >= len(spec.ClusterIPs) || !isAddress(spec.ClusterIPs[i]) {
			n.add(at("spec.clusterIPs", i), "missing; the Service is not served over %s", family)
			continue
		}
		addr, ok := parseAddr(spec.ClusterIPs[i])
		switch {
		case !ok:
			n.add(at("spec.clusterIPs", i),
				"%q is not an IP address; the Service is not served over %s",
				spec.ClusterIPs[i], family)
		case service.FamilyOf(addr) != family:
			n.add(at("spec.clusterIPs", i),
				"%s is not an %s address, as spec.ipFamilies says; the Service is not served over %s",
				addr, family, family)
		case !found[family].IsValid():
			found[family] = addr
		}
	}
	return found
}
