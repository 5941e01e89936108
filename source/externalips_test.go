package source_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/sourcetest"
)

func TestExternalIPsCanBeIgnored(t *testing.T) {
	withIP := func(text string) *service.Spec {
		s := spec("a", 80)
		s.ExternalIPs[service.IPv4] = []netip.Addr{netip.MustParseAddr(text)}
		return s
	}
	posts := sourcetest.NewRecorder()
	cache := source.NewCache(posts, source.Options{IgnoreExternalIPs: true})
	given := withIP("192.0.2.99")
	cache.SetSpec(given)
	posts.Expect(t, "spec ns/a")
	if got := cache.Snapshot(key("a")).Spec; len(got.ExternalIPs[service.IPv4]) != 0 || len(got.Ports) != 1 {
		t.Errorf("got %+v, want everything but the External IP", got)
	}
	if len(given.ExternalIPs[service.IPv4]) != 1 {
		t.Error("the spec that was handed over has been changed")
	}
	cache.SetSpec(withIP("192.0.2.98"))
	cache.ReplaceSpecs([]*service.Spec{withIP("192.0.2.97")})
	posts.Expect(t)

	cache = source.NewCache(posts, source.Options{})
	cache.ReplaceSpecs([]*service.Spec{given})
	if got := cache.Snapshot(key("a")).Spec; len(got.ExternalIPs[service.IPv4]) != 1 {
		t.Errorf("got %+v, want the External IP as well", got)
	}
}
