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

// TestMachine_ServiceTooLarge: a Service above the size limit is reported once. Its remaining frontends follow the API.
func TestMachine_ServiceTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := build(t)
		limit := &service.NodeFacts{Name: "n", Limit: service.Limit{Objects: 10}} // five frontends with one endpoint
		v.now = limit
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
		large := func(objects, leftOut int) Event {
			return TooLarge{Key: web, Excess: service.Excess{Family: service.IPv4, Objects: objects, Max: 10, LeftOut: leftOut}}
		}
		first := set(5)
		expect("at the limit")
		if six := set(6); six.Digest != first.Digest {
			t.Errorf("above the limit: %+v, want %+v", six.Objects, first.Objects)
		}
		expect("above the limit", large(12, 1))
		set(200)
		v.PostSlice(web, "a", slice("a", "10.0.0.2"), Cause{})
		synctest.Wait()
		if v.fragment(web).Digest == first.Digest {
			t.Error("an endpoint was replaced, and the frontends that are left do not follow")
		}
		expect("still above it")
		v.mu.Lock()
		v.now = &service.NodeFacts{Name: "n"}
		v.mu.Unlock()
		v.PostFacts()
		synctest.Wait()
		expect("without a limit", Fits{Key: web})
		v.mu.Lock()
		v.now = limit
		v.mu.Unlock()
		v.PostFacts()
		synctest.Wait()
		expect("limited again", large(400, 195))
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
