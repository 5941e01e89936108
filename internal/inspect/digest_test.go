// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

// TestDigest_APIContent: the digest depends only on the content from the API, not on its order, observations or denied
// frontends.
func TestDigest_APIContent(t *testing.T) {
	made := func(change func(*service.Snapshot)) string {
		s := service.Snapshot{
			Spec: &service.Spec{Ports: []service.Port{{Name: "b", Port: 443}, {Name: "a", Port: 80}}},
			Slices: []*service.Slice{
				{Name: "web-2", Endpoints: []service.SliceEndpoint{{Addr: netip.MustParseAddr("10.0.0.2"), Ready: true}}},
				{Name: "web-1", Ports: []service.SlicePort{{Port: 80}}},
			},
		}
		change(&s)
		return Digest(s)
	}
	same := made(func(*service.Snapshot) {})
	for what, change := range map[string]func(*service.Snapshot){
		"the order of slices": func(s *service.Snapshot) { s.Slices[0], s.Slices[1] = s.Slices[1], s.Slices[0] },
		"the order of ports":  func(s *service.Snapshot) { s.Spec.Ports[0], s.Spec.Ports[1] = s.Spec.Ports[1], s.Spec.Ports[0] },
		"an observation":      func(s *service.Snapshot) { s.Slices = append(s.Slices, &service.Slice{Observed: &service.Observed{}}) },
		"a denied frontend":   func(s *service.Snapshot) { s.Spec.Denied[service.IPv4] = []service.Denial{{}} },
	} {
		if made(change) != same {
			t.Errorf("%s changes the digest", what)
		}
	}
	for what, change := range map[string]func(*service.Snapshot){
		"no Service":      func(s *service.Snapshot) { s.Spec = nil },
		"a port":          func(s *service.Snapshot) { s.Spec.Ports[0].NodePort = 30000 },
		"a condition":     func(s *service.Snapshot) { s.Slices[0].Endpoints[0].Ready = false },
		"fewer endpoints": func(s *service.Snapshot) { s.Slices[0].Endpoints = nil },
		"a target port":   func(s *service.Snapshot) { s.Slices[1].Ports[0].Port = 81 },
	} {
		if made(change) == same {
			t.Errorf("%s does not change the digest", what)
		}
	}
}
