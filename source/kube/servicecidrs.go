package kube

import (
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/reduce"
)

const serviceCIDRs = "servicecidrs"

// reducedCIDR is a ServiceCIDR on its way to the cache.
type reducedCIDR struct {
	name     string
	ranges   []netip.Prefix
	warnings []service.Warning
}

func reduceCIDR(object *networkingv1.ServiceCIDR) reducedCIDR {
	ranges, warnings := reduce.ServiceCIDR(object)
	return reducedCIDR{name: object.Name, ranges: ranges, warnings: warnings}
}

// serviceCIDRStore feeds ServiceCIDRs to the cache.
func (s *Source) serviceCIDRStore() *store[reducedCIDR] {
	return &store[reducedCIDR]{
		reduce: reduceAs(reduceCIDR),
		set: func(item reducedCIDR) {
			s.cache.Warn("ServiceCIDR", item.name, item.warnings)
			s.cache.SetServiceCIDR(item.name, item.ranges)
		},
		remove: func(item reducedCIDR) {
			s.cache.Warn("ServiceCIDR", item.name, nil)
			s.cache.RemoveServiceCIDR(item.name)
		},
		replace: func(items []reducedCIDR) {
			ranges := make(map[string][]netip.Prefix, len(items))
			warnings := make(map[string][]service.Warning)
			for _, item := range items {
				ranges[item.name] = item.ranges
				if len(item.warnings) > 0 {
					warnings[item.name] = item.warnings
				}
			}
			s.cache.WarnAll("ServiceCIDR", warnings)
			s.cache.ReplaceServiceCIDRs(ranges)
			s.cache.Listed(serviceCIDRs)
		},
		heard: s.heard(serviceCIDRs),
	}
}
