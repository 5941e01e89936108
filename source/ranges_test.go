package source_test

import (
	"net/netip"
	"testing"
)

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func TestServiceCIDRsAreAUnion(t *testing.T) {
	cache, posts := newCache()
	cache.SetServiceCIDR("one", prefixes("10.96.0.0/16", "fd00::/112"))
	posts.Expect(t, "ranges 10.96.0.0/16 fd00::/112")

	cache.SetServiceCIDR("two", prefixes("10.96.0.0/16", "10.10.0.0/16"))
	posts.Expect(t, "ranges 10.10.0.0/16 10.96.0.0/16 fd00::/112")

	// The range that both have stays when one of them goes.
	cache.RemoveServiceCIDR("two")
	posts.Expect(t, "ranges 10.96.0.0/16 fd00::/112")

	all := map[string][]netip.Prefix{"three": prefixes("fd00::/112", "10.96.0.0/16")}
	cache.ReplaceServiceCIDRs(all)
	posts.Expect(t)
	delete(all, "three") // the cache has its own copy of the map
	cache.SetServiceCIDR("four", nil)
	posts.Expect(t)

	cache.ReplaceServiceCIDRs(nil)
	posts.Expect(t, "ranges")
	if left := cache.ServiceCIDRs(); len(left) != 0 {
		t.Errorf("ranges %v are left, want none", left)
	}
}
