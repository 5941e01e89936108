// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"net/netip"
	"reflect"
	"testing"
	"testing/synctest"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// sized returns a spec with so many addresses; its slice has one endpoint.
func sized(addresses int) *service.Spec {
	s := spec()
	for i := range addresses - 1 {
		s.ExternalIPs[service.IPv4] = append(s.ExternalIPs[service.IPv4], netip.AddrFrom4([4]byte{198, 18, 0, byte(i)}))
	}
	return s
}

// events returns what was told since the last call.
func (t *town) events() []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	told := t.told
	t.told = nil
	return told
}

// TestMachine_ServiceTooLarge: a Service above the size limit is not rendered and is reported once. It keeps its last
// fragment until it is small enough or deleted.
func TestMachine_ServiceTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := build(t, 5)
		v.slices[web] = []*service.Slice{slice("a", "10.0.0.1")}
		v.Start([]service.Key{service.Node})
		set := func(addresses int) *dataplane.Fragment {
			t.Helper()
			var s *service.Spec
			if addresses > 0 {
				s = sized(addresses)
			}
			v.set(web, s)
			synctest.Wait()
			return v.fragment(web)
		}
		expect := func(when string, want ...Event) {
			t.Helper()
			if got := v.events(); !reflect.DeepEqual(got, append([]Event(nil), want...)) {
				t.Errorf("%s: told %+v, want %+v", when, got, want)
			}
		}
		first := set(5)
		if first == nil {
			t.Fatal("no fragment at the limit")
		}
		expect("at the limit")
		if set(6) != first {
			t.Error("a fragment above the limit")
		}
		expect("above the limit", TooLarge{Key: web, Domain: "one", Objects: 6, Max: 5})
		if set(200) != first {
			t.Error("a fragment above the limit")
		}
		v.mu.Lock()
		v.now = &service.NodeFacts{Name: "other"}
		v.mu.Unlock()
		v.PostFacts()
		v.PostSlice(web, "a", slice("a", "10.0.0.2"), Cause{})
		synctest.Wait()
		if v.fragment(web) != first {
			t.Error("facts and endpoints have changed, and the Service was rendered")
		}
		expect("still above it")
		if now := set(4); now == first || now.Digest == first.Digest {
			t.Error("no fragment with the new endpoint below the limit")
		}
		expect("below it", Fits{Key: web})
		set(6)
		expect("above it", TooLarge{Key: web, Domain: "one", Objects: 6, Max: 5})
		if gone := set(0); !gone.Gone {
			t.Error("no tombstone for a Service that was too large")
		}
		expect("gone", Fits{Key: web})
		v.PostAck(dataplane.Ack{Key: web, Domain: "one", Revision: v.fragment(web).Revision})
		synctest.Wait()
		if v.Len() != 1 {
			t.Errorf("%d actors, want that of the node", v.Len())
		}
	})
}

// TestMachine_ServiceTooLargeFromStart: a Service that is too large from the start has no fragment until it is small
// enough.
func TestMachine_ServiceTooLargeFromStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := build(t, 5)
		v.slices[web] = []*service.Slice{slice("a", "10.0.0.1")}
		v.set(web, sized(6))
		synctest.Wait()
		if v.fragment(web) != nil || len(v.events()) != 1 {
			t.Errorf("fragment %+v", v.fragment(web))
		}
		v.set(web, sized(3))
		synctest.Wait()
		if v.fragment(web) == nil {
			t.Error("no fragment below the limit")
		}
	})
}

// TestMachine_SizeCountsAllAddresses: external IPs, load balancer IPs and ports all count toward the size limit.
func TestMachine_SizeCountsAllAddresses(t *testing.T) {
	addresses := sized(4).ExternalIPs
	for name, set := range map[string]func(s *service.Spec){
		"external IPs":      func(s *service.Spec) { s.ExternalIPs = addresses },
		"load balancer IPs": func(s *service.Spec) { s.LoadBalancerVIPs = addresses },
		"ports": func(s *service.Spec) {
			for i := range 3 {
				port := s.Ports[0]
				port.Port = uint16(1000 + i)
				s.Ports = append(s.Ports, port)
			}
		},
	} {
		s := spec()
		set(s)
		measure := func(most int) (TooLarge, bool) {
			return Measure([]Output{{Name: "one", Renderer: renderer{}}}, s, []*service.Slice{slice("a", "10.0.0.1")}, &service.NodeFacts{}, most)
		}
		if excess, found := measure(3); !found || excess.Objects != 4 {
			t.Errorf("%s: %+v", name, excess)
		}
		if _, found := measure(4); found {
			t.Errorf("%s: too large at the limit", name)
		}
	}
}
