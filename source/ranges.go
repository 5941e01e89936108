package source

import (
	"maps"
	"net/netip"
	"slices"
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
// a handful of ServiceCIDR objects in a cluster, so the union is made anew.
func (c *Cache) changeRanges(change func()) {
	c.mu.Lock()
	change()
	union := unionOf(c.cidrs)
	changed := !slices.Equal(union, c.ranges)
	if changed {
		c.ranges = union
	}
	c.count(changed)
	c.mu.Unlock()
	if changed {
		c.sink.PostServiceCIDRs(union)
	}
}

func unionOf(objects map[string][]netip.Prefix) []netip.Prefix {
	var union []netip.Prefix
	for _, ranges := range objects {
		union = append(union, ranges...)
	}
	slices.SortFunc(union, netip.Prefix.Compare)
	return slices.Compact(union)
}
