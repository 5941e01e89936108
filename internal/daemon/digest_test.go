// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

func exampleObjects() service.Snapshot {
	created := time.Date(2026, 11, 28, 12, 0, 0, 0, time.FixedZone("somewhere", 3600))
	spec := &service.Spec{Key: service.Key{Namespace: "shop", Name: "cart"}, Created: created, Ports: []service.Port{{Name: "http", Port: 80, NodePort: 30080}}}
	spec.ClusterIPs[service.IPv4] = netip.MustParseAddr("10.96.0.7")
	return service.Snapshot{Spec: spec, Slices: []*service.Slice{{
		Service: spec.Key, Name: "cart-1", Ports: []service.SlicePort{{Name: "http", Port: 8080}},
		Endpoints: []service.SliceEndpoint{{Addr: netip.MustParseAddr("10.244.1.2"), Location: &service.Location{NodeName: "n1"}, Ready: true, Serving: true}},
	}}}
}

// TestDigest: the digest depends on a Service's objects only. It is the same in all releases, because the next process
// may be of another one: if this number changes, an upgrade to this release does not stop at a Service that it does not
// follow.
func TestDigest(t *testing.T) {
	const stable uint64 = 1319238344377200521
	if digest := digestOf(exampleObjects()); digest != stable {
		t.Errorf("the digest is %d, want %d", digest, stable)
	}
	for what, c := range map[string]struct {
		change func(*service.Snapshot)
		same   bool
	}{
		"nothing":        {func(*service.Snapshot) {}, true},
		"the time zone":  {func(s *service.Snapshot) { s.Spec.Created = s.Spec.Created.UTC() }, true},
		"other Services": {func(s *service.Snapshot) { s.Spec.Denied[service.IPv4] = []service.Denial{{}} }, true},
		"the times":      {func(s *service.Snapshot) { s.Slices[0].Trigger, s.Slices[0].Received = time.Now(), time.Now() }, true},
		"an observation": {func(s *service.Snapshot) { s.Slices = append(s.Slices, &service.Slice{Observed: &service.Observed{}}) }, true},
		"a shared location": {func(s *service.Snapshot) {
			l := *s.Slices[0].Endpoints[0].Location
			s.Slices[0].Endpoints[0].Location = &l
		}, true},
		"no Service":     {func(s *service.Snapshot) { s.Spec = nil }, false},
		"a created anew": {func(s *service.Snapshot) { s.Spec.Created = s.Spec.Created.Add(time.Second) }, false},
		"a node port":    {func(s *service.Snapshot) { s.Spec.Ports[0].NodePort++ }, false},
		"an external IP": {func(s *service.Snapshot) {
			s.Spec.ExternalIPs[service.IPv4] = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
		}, false},
		"a source range": {func(s *service.Snapshot) {
			s.Spec.SourceRanges[service.IPv4] = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		}, false},
		"a drain":       {func(s *service.Snapshot) { s.Spec.Drain = service.Drain{Limited: true} }, false},
		"a condition":   {func(s *service.Snapshot) { s.Slices[0].Endpoints[0].Ready = false }, false},
		"a zone":        {func(s *service.Snapshot) { s.Slices[0].Endpoints[0].Location.Zone = "a" }, false},
		"a target port": {func(s *service.Snapshot) { s.Slices[0].Ports[0].Port++ }, false},
		"a weight":      {func(s *service.Snapshot) { s.Slices[0].Weight = 2 }, false},
		"no endpoint":   {func(s *service.Snapshot) { s.Slices[0].Endpoints = nil }, false},
		"no slice":      {func(s *service.Snapshot) { s.Slices = nil }, false},
	} {
		changed := exampleObjects()
		c.change(&changed)
		if same := digestOf(changed) == digestOf(exampleObjects()); same != c.same {
			t.Errorf("%s: the same digest: %v, want %v", what, same, c.same)
		}
	}
}
