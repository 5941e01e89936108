// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/sourcetest"
)

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// TestCache_ServiceCIDRsUnion: the ranges are the union of all ServiceCIDRs, and are posted only if they change.
func TestCache_ServiceCIDRsUnion(t *testing.T) {
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

// TestCache_ReportsExternalIPsInServiceCIDRs: external IPs in a ServiceCIDR are reported once per Service, whether the
// Service or the range comes first.
func TestCache_ReportsExternalIPsInServiceCIDRs(t *testing.T) {
	var told []string
	options := source.Options{Warn: func(w service.Warning) { told = append(told, w.String()) }}
	cache := source.NewCache(sourcetest.NewRecorder(), options)
	expect := func(want ...string) {
		t.Helper()
		if !slices.Equal(told, want) {
			t.Errorf("warnings %q, want %q", told, want)
		}
		told = nil
	}
	with := func(name string, addrs ...string) *service.Spec {
		s := spec(name, 80)
		for _, text := range addrs {
			addr := netip.MustParseAddr(text)
			s.ExternalIPs[service.FamilyOf(addr)] = append(s.ExternalIPs[service.FamilyOf(addr)], addr)
		}
		return s
	}
	const first = "Service ns/a: spec.externalIPs: 10.96.0.50 is in 10.96.0.0/16, from which ClusterIPs are allocated" +
		"; not served; addresses.externalIPsInServiceCIDR allows it"
	cache.SetSpec(with("a", "10.96.0.50", "192.0.2.1"))
	expect()
	cache.SetServiceCIDR("one", prefixes("10.96.0.0/16"))
	expect(first)
	cache.SetSpec(with("a", "10.96.0.50"))
	cache.ReplaceSpecs([]*service.Spec{with("a", "10.96.0.50"), with("b", "192.0.2.1")})
	expect()
	cache.SetSpec(with("b", "10.96.0.51", "10.96.0.52"))
	expect("Service ns/b: spec.externalIPs: 10.96.0.51 is in 10.96.0.0/16, from which ClusterIPs are allocated" +
		" (more such addresses: 1); not served; addresses.externalIPsInServiceCIDR allows it")

	// Corrected and wrong again, or deleted and created again, is news.
	cache.SetSpec(with("a", "192.0.2.1"))
	cache.SetSpec(with("a", "10.96.0.50"))
	expect(first)
	cache.RemoveSpec(key("a"))
	cache.SetSpec(with("a", "10.96.0.50"))
	expect(first)
	// The warnings of a feeder do not replace it.
	cache.Warn("Service", "ns/a", nil)
	cache.SetSpec(with("a", "10.96.0.50"))
	expect()

	options.ExternalIPsInServiceCIDR = true
	cache = source.NewCache(sourcetest.NewRecorder(), options)
	cache.SetServiceCIDR("one", prefixes("10.96.0.0/16"))
	cache.SetSpec(with("a", "10.96.0.50"))
	expect()
}
