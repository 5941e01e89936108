// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// wish returns an IPv4 Service with these numbers of ports, external IPs, load balancer IPs and endpoints of each port.
func wish(ports, externalIPs, vips, endpoints int) (*Spec, []*Slice) {
	addresses := func(from string, n int) (all []netip.Addr) {
		for a := netip.MustParseAddr(from); len(all) < n; a = a.Next() {
			all = append(all, a)
		}
		return all
	}
	s := &Spec{Key: Key{"ns", "web"}}
	s.ClusterIPs[IPv4] = netip.MustParseAddr("172.30.0.1")
	s.ExternalIPs[IPv4], s.LoadBalancerVIPs[IPv4] = addresses("198.18.0.1", externalIPs), addresses("198.19.0.1", vips)
	slice := &Slice{Service: s.Key, Name: "s"}
	for i := range ports {
		name := fmt.Sprint("p", i)
		s.Ports = append(s.Ports, Port{Name: name, Port: uint16(1 + i), NodePort: uint16(30000 + i)})
		slice.Ports = append(slice.Ports, SlicePort{Name: name, Port: 8080})
	}
	for _, a := range addresses("10.0.0.1", endpoints) {
		slice.Endpoints = append(slice.Endpoints, SliceEndpoint{Addr: a, Ready: true, Serving: true})
	}
	return s, []*Slice{slice}
}

func limited(objects int, layout Layout) *NodeFacts {
	return &NodeFacts{Name: "n", Limit: Limit{objects, layout}}
}

// kinds counts the frontends of a view by kind.
func kinds(v *View) (n [ExternalIP + 1]int) {
	for _, family := range Families {
		for i := range v.Ports[family] {
			for e := range v.Ports[family][i].Exposures {
				n[e.Kind]++
			}
		}
	}
	return n
}

// TestLimit_FrontendsLeftOut: a Service above the limit loses external IPs first and ClusterIPs last, in all layouts.
func TestLimit_FrontendsLeftOut(t *testing.T) {
	for _, c := range []struct {
		name                           string
		ports, external, vips, objects int
		layout                         Layout
		want                           [ExternalIP + 1]int
		leftOut, asked                 int
	}{
		// Two ports with 3 + 2 + 2 frontends, each of which takes 1 + 3 objects.
		{"no limit", 2, 3, 2, 0, SlotsEach, [...]int{2, 2, 4, 6}, 0, 0},
		{"at the limit", 2, 3, 2, 56, SlotsEach, [...]int{2, 2, 4, 6}, 0, 0},
		{"one object more", 2, 3, 2, 55, SlotsEach, [...]int{2, 2, 4, 5}, 1, 56},
		{"no external IP of the second port", 2, 3, 2, 44, SlotsEach, [...]int{2, 2, 4, 3}, 3, 56},
		{"no external IP", 2, 3, 2, 32, SlotsEach, [...]int{2, 2, 4, 0}, 6, 56},
		{"one load balancer IP", 2, 3, 2, 20, SlotsEach, [...]int{2, 2, 1, 0}, 9, 56},
		{"ClusterIPs alone", 2, 3, 2, 8, SlotsEach, [...]int{2, 0, 0, 0}, 12, 56},
		{"one ClusterIP", 2, 3, 2, 7, SlotsEach, [...]int{1, 0, 0, 0}, 13, 56},
		{"nothing fits", 2, 3, 2, 3, SlotsEach, [...]int{0, 0, 0, 0}, 14, 56},
		{"IPVS", 2, 3, 2, 69, EndpointsEach, [...]int{2, 2, 4, 5}, 1, 70},
		{"iptables", 2, 3, 2, 19, EndpointsOnce, [...]int{2, 2, 4, 5}, 1, 20},
		{"iptables: the second port does not fit", 2, 3, 2, 10, EndpointsOnce, [...]int{2, 2, 0, 0}, 10, 20},
		{"iptables: its endpoints do not fit", 2, 3, 2, 7, EndpointsOnce, [...]int{1, 1, 2, 0}, 10, 20},
	} {
		spec, from := wish(c.ports, c.external, c.vips, 3)
		before := *spec
		v := Resolve(spec.Key, spec, from, limited(c.objects, c.layout))
		want := Excess{}
		if c.leftOut > 0 {
			want = Excess{IPv4, c.asked, c.objects, c.leftOut}
		}
		if got := kinds(&v); got != c.want || v.Excess != want {
			t.Errorf("%s: %v frontends and %+v, want %v and %+v", c.name, got, v.Excess, c.want, want)
		}
		if !spec.Equal(&before) {
			t.Errorf("%s: the spec was changed", c.name)
		}
		for i := range v.Ports[IPv4] {
			p := &v.Ports[IPv4][i]
			if served := p.ClusterIP.IsValid() || p.ExternallyAccessible(); served != (len(p.Cluster) == 3) {
				t.Errorf("%s: port %d is served: %t, by %d endpoints", c.name, p.Port, served, len(p.Cluster))
			}
		}
	}
}

// TestLimit_CountedObjects: the number of objects depends on source ranges, denied sources, full tables of slots and the
// addresses of node ports, and not on the state of endpoints or denied frontends.
func TestLimit_CountedObjects(t *testing.T) {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	asked := func(layout Layout, change func(*Spec, []*Slice, *NodeFacts)) int {
		spec, from := wish(1, 1, 1, 3)
		facts := limited(1, layout)
		change(spec, from, facts)
		return Resolve(spec.Key, spec, from, facts).Excess.Objects
	}
	for name, c := range map[string]struct {
		change           func(*Spec, []*Slice, *NodeFacts)
		slots, ipvs, ipt int
	}{
		"all kinds":      {func(*Spec, []*Slice, *NodeFacts) {}, 16, 20, 7},
		"not ready":      {func(_ *Spec, s []*Slice, _ *NodeFacts) { s[0].Endpoints[0].Ready = false }, 16, 20, 7},
		"source ranges":  {func(s *Spec, _ []*Slice, _ *NodeFacts) { s.SourceRanges[IPv4] = []netip.Prefix{prefix("192.0.2.0/24")} }, 17, 21, 8},
		"denied sources": {func(s *Spec, _ []*Slice, _ *NodeFacts) { s.DenyRanges[IPv4] = []netip.Prefix{prefix("192.0.2.0/24")} }, 19, 20, 9},
		"not outside":    {func(s *Spec, _ []*Slice, _ *NodeFacts) { s.Ports[0].NotOutside = true }, 8, 10, 5},
		"hashed":         {func(s *Spec, _ []*Slice, _ *NodeFacts) { s.Balancing = SourceHash }, 4 * (1 + HashedSlotsMin), 20, 7},
		"slow start":     {func(s *Spec, _ []*Slice, _ *NodeFacts) { s.Adaptation.SlowStart = time.Second }, 4 * (1 + HashedSlotsMin), 20, 7},
		"weights":        {func(_ *Spec, s []*Slice, _ *NodeFacts) { s[0].Weight = 2 }, 4 * (1 + HashedSlotsMin), 20, 7},
		"in the ranges of ClusterIPs": {func(_ *Spec, _ []*Slice, f *NodeFacts) {
			f.ServiceCIDRs[IPv4] = []netip.Prefix{prefix("198.18.0.0/16")}
		}, 12, 15, 6},
		"node ports at two addresses": {func(_ *Spec, _ []*Slice, f *NodeFacts) {
			f.NodePorts[IPv4] = NodePortAddresses{All: true, Host: []netip.Addr{addr("192.0.2.1"), addr("192.0.2.2")}}
		}, 20, 25, 7},
		"node ports at one of them": {func(_ *Spec, _ []*Slice, f *NodeFacts) {
			f.NodePorts[IPv4] = NodePortAddresses{Addresses: []netip.Addr{addr("192.0.2.1")}, Host: []netip.Addr{addr("192.0.2.1"), addr("192.0.2.2")}}
		}, 16, 20, 7},
		"denied frontends": {func(s *Spec, _ []*Slice, _ *NodeFacts) {
			s.Denied[IPv4] = []Denial{{Frontend{addr("172.30.0.1"), 1, TCP}, Key{"ns", "other"}}}
		}, 16, 20, 7},
	} {
		for layout, want := range []int{SlotsEach: c.slots, EndpointsEach: c.ipvs, EndpointsOnce: c.ipt} {
			if got := asked(Layout(layout), c.change); got != want {
				t.Errorf("%s: layout %d counts %d objects, want %d", name, layout, got, want)
			}
		}
	}
}

// TestLimit_RandomServices: with any limit, a random Service serves a part of its frontends, and the view counts the
// others.
func TestLimit_RandomServices(t *testing.T) {
	served := func(spec *Spec, from []*Slice, facts *NodeFacts) (all []string, e Excess) {
		v := Resolve(spec.Key, spec, from, facts)
		for i := range v.Ports[IPv4] {
			for f := range v.Ports[IPv4][i].Exposures {
				all = append(all, f.Frontend.String())
			}
		}
		slices.Sort(all)
		return all, v.Excess
	}
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		spec, from := wish(1+r.IntN(20), r.IntN(6), r.IntN(6), r.IntN(5))
		spec.InternalLocal = r.IntN(2) == 0
		facts := limited(1+r.IntN(300), Layout(r.IntN(3)))
		some, e := served(spec, from, facts)
		facts.Limit.Objects = 1 << 40
		all, _ := served(spec, from, facts)
		if len(some)+e.LeftOut != len(all) {
			t.Errorf("seed %d: %d of %d frontends are served, and %d are left out", seed, len(some), len(all), e.LeftOut)
		}
		for _, f := range some {
			if _, found := slices.BinarySearch(all, f); !found {
				t.Errorf("seed %d: %s is not asked for", seed, f)
			}
		}
	}
}

// TestLimit_LargestObjects: the limit costs little for the largest Service that the API accepts. Without it, this Service
// would have 200 million endpoints and a billion frontends.
func TestLimit_LargestObjects(t *testing.T) {
	const ports, addresses, slices, endpoints = 20_000, 50_000, 20, 500
	spec, from := wish(ports, addresses, 0, endpoints)
	for n := range slices - 1 {
		next := *from[0]
		next.Name = fmt.Sprint(n)
		from = append(from, &next)
	}
	began := time.Now()
	v := Resolve(spec.Key, spec, from, limited(50_000, SlotsEach))
	took := time.Since(began)
	if n := kinds(&v); n != [...]int{4, 0, 0, 0} {
		t.Errorf("%v frontends, want 4 ClusterIPs", n)
	}
	want := Excess{IPv4, ports * (2 + addresses) * (1 + slices*endpoints), 50_000, ports*(2+addresses) - 4}
	if t.Logf("%v in %v", v.Excess, took); v.Excess != want {
		t.Errorf("%+v, want %+v", v.Excess, want)
	}
	resolved := 0
	for i := range v.Ports[IPv4] {
		resolved += len(v.Ports[IPv4][i].Cluster)
	}
	if resolved > 50_000 {
		t.Errorf("%d endpoints were resolved", resolved)
	}
	if e := Resolve(spec.Key, nil, from, limited(1, SlotsEach)).Excess; e != (Excess{}) {
		t.Errorf("a Service that is gone: %+v", e)
	}
}
