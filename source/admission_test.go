// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/sourcetest"
)

// asks returns a Service that is so many seconds old as others are older, with port 80/tcp at a
// ClusterIP of its own, and more: "vip 192.0.2.1", "external 192.0.2.1", "cluster 10.0.0.9", "node 30080".
func asks(name string, created int64, more ...string) *service.Spec {
	s := &service.Spec{Key: key(name), Created: time.Unix(created, 0), Ports: []service.Port{{Port: 80}}}
	s.ClusterIPs[service.IPv4] = netip.AddrFrom4([4]byte{10, 1, name[0], name[len(name)-1]})
	for _, what := range more {
		kind, text, _ := strings.Cut(what, " ")
		addr, _ := netip.ParseAddr(text)
		switch kind {
		case "cluster":
			s.ClusterIPs[service.IPv4] = addr
		case "vip":
			s.LoadBalancerVIPs[service.IPv4] = append(s.LoadBalancerVIPs[service.IPv4], addr)
		case "external":
			s.ExternalIPs[service.IPv4] = append(s.ExternalIPs[service.IPv4], addr)
		case "node":
			_, _ = fmt.Sscan(text, &s.Ports[0].NodePort)
		}
	}
	return s
}

// admissions is a cache that writes down what is shadowed.
type admissions struct {
	*source.Cache
	posts *sourcetest.Recorder
	lines []string
}

func newAdmissions() *admissions {
	a := &admissions{posts: sourcetest.NewRecorder()}
	a.Cache = source.NewCache(a.posts, source.Options{Shadowed: func(s source.Shadowed) {
		verb := "lacks"
		if s.Over {
			verb = "no longer lacks"
		}
		a.lines = append(a.lines, fmt.Sprintf("%s %s %v of %s", s.Key.Name, verb, s.Frontends, s.By.Name))
	}})
	return a
}

func (a *admissions) expect(t *testing.T, lines ...string) {
	t.Helper()
	if !slices.Equal(a.lines, lines) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(a.lines, "\n\t"), strings.Join(lines, "\n\t"))
	}
	a.lines = nil
}

// TestAdmission_Precedence: an allocated frontend comes before one of a load balancer, and that before an external IP.
// Between equal kinds, the older Service comes first, then the smaller name.
func TestAdmission_Precedence(t *testing.T) {
	const x = "192.0.2.1"
	for name, c := range map[string]struct {
		services []*service.Spec
		owner    string
	}{
		"a ClusterIP":     {[]*service.Spec{asks("a", 1, "external "+x), asks("b", 2, "vip "+x), asks("c", 3, "cluster "+x)}, "c"},
		"a VIP":           {[]*service.Spec{asks("a", 1, "external "+x), asks("b", 2, "vip "+x)}, "b"},
		"the older":       {[]*service.Spec{asks("b", 1, "external "+x), asks("a", 2, "external "+x)}, "b"},
		"the smaller":     {[]*service.Spec{asks("b", 1, "external "+x), asks("a", 1, "external "+x)}, "a"},
		"its better kind": {[]*service.Spec{asks("a", 1, "external "+x), asks("b", 2, "external "+x, "vip "+x)}, "b"},
	} {
		for range len(c.services) {
			c.services = append(c.services[1:], c.services[0])
			a := newAdmissions()
			for _, s := range c.services {
				a.SetSpec(s)
			}
			if owner, _ := a.Owner(service.IPv4, service.Frontend{Addr: netip.MustParseAddr(x), Port: 80}); owner != key(c.owner) {
				t.Errorf("%s: %v has it", name, owner)
			}
		}
	}
}

// TestAdmission_OwnershipMoves: when a frontend changes its owner, the loser and the new owner are posted, and each
// loss is reported once.
func TestAdmission_OwnershipMoves(t *testing.T) {
	const x, at = "external 192.0.2.1", "192.0.2.1:80/tcp"
	a := newAdmissions()
	a.SetSpec(asks("young", 2, x))
	a.posts.Expect(t, "spec ns/young")
	a.expect(t)

	a.SetSpec(asks("old", 1, x))
	a.posts.Expect(t, "spec ns/old", "spec ns/young")
	a.expect(t, "young lacks "+at+" of old")
	if denied := a.Snapshot(key("young")).Spec.Denied[service.IPv4]; len(denied) != 1 || denied[0].By != key("old") {
		t.Errorf("young is denied %v", denied)
	}

	a.SetSpec(asks("youngest", 3, x))
	a.posts.Expect(t, "spec ns/youngest")
	a.expect(t, "youngest lacks "+at+" of old")
	if n := a.Stats().Shadowed; n != 2 {
		t.Errorf("%d are shadowed", n)
	}

	a.RemoveSpec(key("old"))
	a.posts.Expect(t, "spec ns/old gone", "spec ns/young", "spec ns/youngest")
	a.expect(t, "young no longer lacks "+at+" of old", "youngest no longer lacks "+at+" of old", "youngest lacks "+at+" of young")

	a.SetSpec(asks("young", 2))
	a.posts.Expect(t, "spec ns/young", "spec ns/youngest")
	a.expect(t, "youngest no longer lacks "+at+" of young")
	if n := a.Stats().Shadowed; n != 0 {
		t.Errorf("%d are shadowed", n)
	}

	a.SetSpec(asks("old", 1, "node 30080"))
	a.SetSpec(asks("young", 2, "node 30080"))
	a.expect(t, "young lacks node port 30080/tcp of old")
	if owner, _ := a.Owner(service.IPv4, service.Frontend{Addr: netip.MustParseAddr("198.51.100.1"), Port: 30080}); owner != key("old") {
		t.Errorf("%v has the node port at an address of the node", owner)
	}
}

// TestAdmission_NodePortLostInEitherFamily: a node port lost in one or both families is reported once, and reported as
// regained when it is lost in none.
func TestAdmission_NodePortLostInEitherFamily(t *testing.T) {
	both := func(name string, created int64) *service.Spec {
		s := asks(name, created, "node 30080")
		s.ClusterIPs[service.IPv6] = netip.MustParseAddr("2001:db8::1")
		return s
	}
	a := newAdmissions()
	old, young := both("old", 1), both("young", 2)
	young.ClusterIPs[service.IPv6] = netip.MustParseAddr("2001:db8::2")
	a.SetSpec(old)
	a.SetSpec(young)
	a.expect(t, "young lacks node port 30080/tcp of old")
	a.SetSpec(asks("old", 1, "node 30080"))
	a.expect(t)
	a.RemoveSpec(key("old"))
	a.expect(t, "young no longer lacks node port 30080/tcp of old")
}

// TestAdmission_IndependentOfHistory: after any history, each Service is denied exactly the frontends that a comparison
// of all Services gives.
func TestAdmission_IndependentOfHistory(t *testing.T) {
	wishes := []string{"external 192.0.2.1", "external 192.0.2.2", "vip 192.0.2.1", "vip 192.0.2.2", "node 30001", "node 30002", "cluster 192.0.2.2"}
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		a := newAdmissions()
		specs := map[service.Key]*service.Spec{}
		for range 60 {
			name := string(rune('a' + random.IntN(6)))
			if random.IntN(4) == 0 {
				delete(specs, key(name))
			} else {
				var some []string
				for range random.IntN(4) {
					some = append(some, wishes[random.IntN(len(wishes))])
				}
				specs[key(name)] = asks(name, int64(random.IntN(3)), some...)
			}
			switch spec := specs[key(name)]; {
			case random.IntN(8) == 0:
				var all []*service.Spec
				for _, s := range specs {
					all = append(all, s)
				}
				a.ReplaceSpecs(all)
			case spec == nil:
				a.RemoveSpec(key(name))
			default:
				a.SetSpec(spec)
			}
			shadowed := 0
			for k, s := range specs {
				want := deniedAmong(s, specs)
				got := a.Snapshot(k).Spec.Denied
				if fmt.Sprint(got[service.IPv4]) != fmt.Sprint(want) {
					t.Fatalf("seed %d: %v is denied %v, want %v", seed, k, got[service.IPv4], want)
				}
				shadowed += len(want)
			}
			if n := a.Stats().Shadowed; n != shadowed {
				t.Fatalf("seed %d: %d are shadowed, want %d", seed, n, shadowed)
			}
		}
	}
}

// deniedAmong compares a Service with all others.
func deniedAmong(s *service.Spec, all map[service.Key]*service.Spec) (denied []service.Denial) {
	s.Claims(func(family service.Family, f service.Frontend, kind service.FrontendKind) {
		best, by := s, kind
		for _, other := range all {
			other.Claims(func(_ service.Family, at service.Frontend, kind service.FrontendKind) {
				if at != f {
					return
				}
				if kind < by || kind == by && (other.Created.Before(best.Created) ||
					other.Created.Equal(best.Created) && other.Key.Name < best.Key.Name) {
					best, by = other, kind
				}
			})
		}
		if best != s && !slices.ContainsFunc(denied, func(d service.Denial) bool { return d.Frontend == f }) {
			denied = append(denied, service.Denial{Frontend: f, By: best.Key})
		}
	})
	slices.SortFunc(denied, func(a, b service.Denial) int { return a.Frontend.Compare(b.Frontend) })
	return denied
}
