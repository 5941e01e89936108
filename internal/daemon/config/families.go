package config

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/service"
)

// CheckFamilies compares the settings with the families of the node, which are
// known only once it has been looked up: its primary family, and whether the node
// can do both. The error says that the proxy cannot serve; the warnings are for
// the log. Pod CIDRs are the node's own, and not looked at here.
func (c *Config) CheckFamilies(primary service.Family, dual bool) (warnings []Warning, err error) {
	k := &c.KubeProxy
	kind := fmt.Sprintf("the node serves %s only", primary)
	if dual {
		kind = fmt.Sprintf("the node's first family is %s", primary)
	}
	odd := func(field, problem string) {
		warnings = append(warnings, Warning{Place{File: c.File, Field: field}, problem})
	}
	if k.ClusterCIDR != "" && !hasFamily(strings.Split(k.ClusterCIDR, ","), primary) {
		problem := fmt.Sprintf("%q: %s, and this is of the other", k.ClusterCIDR, kind)
		if k.DetectLocalMode == localClusterCIDR && !dual {
			return warnings, &InvalidError{[]Problem{{Place{File: c.File, Field: "clusterCIDR"}, problem}}}
		}
		odd("clusterCIDR", problem)
	}
	c.checkNodePortFamilies(primary, odd)
	if dual {
		return warnings, nil
	}
	if len(k.IPVS.ExcludeCIDRs) > 0 && !hasFamily(k.IPVS.ExcludeCIDRs, primary) {
		odd("ipvs.excludeCIDRs", kind+", and all of these are of the other")
	}
	for _, server := range []struct{ field, address string }{
		{"healthzBindAddress", k.HealthzBindAddress}, {"metricsBindAddress", k.MetricsBindAddress},
	} {
		host, _, _ := net.SplitHostPort(server.address) // checked, or empty
		address := parseAddress(host)
		if address.IsValid() && !address.IsUnspecified() && service.FamilyOf(address) != primary {
			odd(server.field, fmt.Sprintf("%s: %s, and this is of the other", server.address, kind))
		}
	}
	return warnings, nil
}

// checkNodePortFamilies tells of a family whose node ports are not limited,
// although those of the other are.
func (c *Config) checkNodePortFamilies(primary service.Family, odd func(field, problem string)) {
	ranges := c.KubeProxy.NodePortAddresses
	switch {
	case len(ranges) == 0:
		odd("nodePortAddresses", "empty: node ports answer on all addresses of this node; consider primary")
	case ranges[0] == nodePortPrimary:
	case !hasFamily(ranges, primary):
		odd("nodePortAddresses", fmt.Sprintf("has no range of %s: node ports answer on all addresses of that family", primary))
	case !hasFamily(ranges, other(primary)) && c.dualStack():
		odd("nodePortAddresses", fmt.Sprintf("has no range of %s: node ports answer on all addresses of that family", other(primary)))
	}
}

// dualStack tells whether something in the configuration is of both families.
func (c *Config) dualStack() bool {
	for _, ranges := range [][]string{strings.Split(c.KubeProxy.ClusterCIDR, ","), c.KubeProxy.NodePortAddresses, c.KubeProxy.IPVS.ExcludeCIDRs} {
		if hasFamily(ranges, service.IPv4) && hasFamily(ranges, service.IPv6) {
			return true
		}
	}
	return false
}

// hasFamily tells whether one of the ranges is of a family.
func hasFamily(ranges []string, family service.Family) bool {
	return slices.ContainsFunc(ranges, func(text string) bool {
		r, ok := parseRange(text)
		return ok && service.FamilyOf(r.Addr()) == family
	})
}

func other(family service.Family) service.Family { return service.IPv6 - family }
