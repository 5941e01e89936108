// SPDX-License-Identifier: Apache-2.0

package source

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// SetServiceCIDR files the ranges of one ServiceCIDR object.
func (c *Cache) SetServiceCIDR(name string, ranges []netip.Prefix) {
	c.changeRanges(func() { c.cidrs[name] = ranges })
}

// RemoveServiceCIDR says that a ServiceCIDR object is gone. A range that another
// object names as well stays.
func (c *Cache) RemoveServiceCIDR(name string) {
	c.changeRanges(func() { delete(c.cidrs, name) })
}

// ReplaceServiceCIDRs takes the complete list of ServiceCIDR objects, by name.
func (c *Cache) ReplaceServiceCIDRs(all map[string][]netip.Prefix) {
	c.changeRanges(func() {
		clear(c.cidrs)
		maps.Copy(c.cidrs, all)
	})
}

// ServiceCIDRs returns the union of all ranges, sorted and without duplicates.
func (c *Cache) ServiceCIDRs() []netip.Prefix {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.ranges
}

// changeRanges posts the union of all objects if the change alters it. There are
// a handful of ServiceCIDR objects in a cluster, so the union is made again. A changed union walks all
// Services for those with an external IP inside.
func (c *Cache) changeRanges(change func()) {
	c.mu.Lock()
	change()
	union := unionOf(c.cidrs)
	changed := !slices.Equal(union, c.ranges)
	var fresh []service.Warning
	if changed {
		c.ranges = union
		for _, f := range c.specs {
			fresh = append(fresh, c.warnOfRanges(f.spec)...)
		}
	}
	c.mu.Unlock()
	if changed {
		c.sink.PostServiceCIDRs(union)
	}
	c.tell(fresh)
}

// rangeWarnings is the kind of warnings that depend on ServiceCIDRs. Those of the feeders do not.
const rangeWarnings = "Service and ServiceCIDRs"

// warnOfRanges records whether external IPs of a Service are inside ServiceCIDRs, where
// service.NodeFacts ignores them. It returns the warning if it is new.
func (c *Cache) warnOfRanges(spec *service.Spec) []service.Warning {
	var first netip.Addr
	ignored := 0
	for _, family := range service.Families {
		for _, addr := range spec.ExternalIPs[family] {
			if !c.externalIPsInServiceCIDR && service.Within(c.ranges, addr).IsValid() {
				if ignored++; ignored == 1 {
					first = addr
				}
			}
		}
	}
	if ignored == 0 {
		if len(c.warnings.given[rangeWarnings]) > 0 {
			c.warnings.set(rangeWarnings, spec.Key.String(), nil)
		}
		return nil
	}
	problem := fmt.Sprintf("%v is in %v, from which ClusterIPs are allocated", first, service.Within(c.ranges, first))
	if ignored > 1 {
		problem += fmt.Sprintf(" (more such addresses: %d)", ignored-1)
	}
	return c.warnings.set(rangeWarnings, spec.Key.String(), []service.Warning{{Object: "Service " + spec.Key.String(),
		Field: "spec.externalIPs", Problem: problem, Effect: "not served; addresses.externalIPsInServiceCIDR allows it"}})
}

func unionOf(objects map[string][]netip.Prefix) []netip.Prefix {
	var union []netip.Prefix
	for _, ranges := range objects {
		union = append(union, ranges...)
	}
	slices.SortFunc(union, netip.Prefix.Compare)
	return slices.Compact(union)
}
