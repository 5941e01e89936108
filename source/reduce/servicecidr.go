package reduce

import (
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-proxy/sluice/service"
)

// ServiceCIDR reduces a ServiceCIDR to its ranges, masked, without duplicates, in
// API order. Conditions and deletion are not looked at: a range is in use until
// its object is gone.
func ServiceCIDR(object *networkingv1.ServiceCIDR) ([]netip.Prefix, []service.Warning) {
	n := &notes{kind: "ServiceCIDR", name: object.Name}
	var found []netip.Prefix
	for i, text := range object.Spec.CIDRs {
		prefix, ok := parsePrefix(text)
		if !ok {
			n.add(at("spec.cidrs", i), "%q is not a CIDR; the entry is skipped", text)
			continue
		}
		if !slices.Contains(found, prefix) {
			found = append(found, prefix)
		}
	}
	return found, n.warnings
}
