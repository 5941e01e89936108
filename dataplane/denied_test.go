// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	iptrender "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	ipvsrender "github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/sourcetest"
)

// contest is a cache in which one Service has lost one frontend to another one.
type contest struct {
	*testing.T
	family       service.Family
	cache        *source.Cache
	owner, loser *service.Spec
	facts        service.NodeFacts
}

// newContest makes a Service with every sort of frontend, of which the other one will take some.
func newContest(t *testing.T, family service.Family, endpoints bool) *contest {
	c := &contest{T: t, family: family, cache: source.NewCache(sourcetest.NewRecorder(), source.Options{})}
	var slice *service.Slice
	if c.loser, slice = c.service("loser", 2); endpoints {
		c.cache.SetSlice(slice)
	}
	c.loser.ExternalIPs[family] = []netip.Addr{netip.MustParseAddr([]string{"192.0.2.1", "2001:db8::1"}[family])}
	c.loser.LoadBalancerVIPs[family] = []netip.Addr{netip.MustParseAddr([]string{"192.0.2.9", "2001:db8::9"}[family])}
	c.loser.SourceRanges[family] = []netip.Prefix{netip.MustParsePrefix([]string{"203.0.113.0/25", "2001:db8:ffff::/112"}[family])}
	c.loser.DenyRanges = c.loser.SourceRanges
	c.loser.ExternalLocal = true
	c.owner, slice = c.service("owner", 1)
	c.cache.SetSlice(slice)
	c.facts.Name = "n1"
	host := netip.MustParseAddr([]string{"198.51.100.9", "2001:db8:1::9"}[family])
	c.facts.NodePorts[family] = service.NodePortAddresses{All: true, Host: []netip.Addr{host}, Addresses: []netip.Addr{host}}
	return c
}

// service returns a Service with a ClusterIP and a node port of its own, and its endpoints.
func (c *contest) service(name string, number byte) (*service.Spec, *service.Slice) {
	address := func(net byte) netip.Addr {
		if c.family == service.IPv6 {
			return netip.AddrFrom16([16]byte{0: 0xfd, 14: net, 15: number})
		}
		return netip.AddrFrom4([4]byte{10, 0, net, number})
	}
	spec := &service.Spec{Key: service.Key{Namespace: "ns", Name: name}, Created: time.Unix(int64(number), 0),
		Ports: []service.Port{{Name: "web", Protocol: service.UDP, Port: 80, NodePort: 30080 + uint16(number)}}}
	spec.ClusterIPs[c.family] = address(1)
	return spec, &service.Slice{Service: spec.Key, Name: name, Family: c.family,
		Ports:     []service.SlicePort{{Name: "web", Protocol: service.UDP, Port: 8080}},
		Endpoints: []service.SliceEndpoint{{Addr: address(2), Ready: true, Serving: true, Location: &service.Location{NodeName: "n1"}}}}
}

// rendered returns the objects of a Service that are of frontends.
func (c *contest) rendered(renderer dataplane.Renderer, of *service.Spec) map[dataplane.ID]service.Frontend {
	known := c.cache.Snapshot(of.Key)
	view := service.Resolve(of.Key, known.Spec, known.Slices, &c.facts)
	found := map[dataplane.ID]service.Frontend{}
	for _, o := range renderer.Service(context.Background(), &view, &c.facts) {
		if f, told := renderer.Naming().Frontend(o.ID); told {
			found[o.ID] = f
		}
	}
	return found
}

// check compares what the Services have with what the loser would have alone. It returns how many objects
// the loser has lost.
func (c *contest) check(renderer dataplane.Renderer) (lost int) {
	c.cache.RemoveSpec(c.owner.Key)
	c.cache.SetSpec(c.loser)
	before := c.rendered(renderer, c.loser)
	c.cache.SetSpec(c.owner)
	after, owners := c.rendered(renderer, c.loser), c.rendered(renderer, c.owner)
	if denied := c.cache.Snapshot(c.loser.Key).Spec.Denied[c.family]; len(denied) != 1 || denied[0].By != c.owner.Key {
		c.Errorf("the loser is denied %v", denied)
	}
	for id, f := range before {
		by, _ := c.cache.Owner(c.family, f)
		_, has := after[id]
		if has == (by == c.owner.Key) {
			c.Errorf("%v belongs to %v, and the loser renders %q: %v", f, by, id, has)
		}
		if by == c.owner.Key {
			lost++
		}
	}
	for id, f := range after {
		if _, had := before[id]; !had {
			c.Errorf("the loser renders %q of %v because it has lost something", id, f)
		}
		if _, both := owners[id]; both {
			c.Errorf("both render %q of %v", id, f)
		}
	}
	return lost
}

// TestRenderers_DeniedFrontend takes each kind of frontend from a Service, with and without endpoints, and checks that
// every backend renders the rest of the Service as before.
func TestRenderers_DeniedFrontend(t *testing.T) {
	takes := map[string]func(c *contest){
		"ClusterIP":   func(c *contest) { c.owner.ClusterIPs[c.family] = c.loser.ClusterIPs[c.family] },
		"external IP": func(c *contest) { c.owner.ExternalIPs[c.family] = c.loser.ExternalIPs[c.family] },
		"VIP":         func(c *contest) { c.owner.LoadBalancerVIPs[c.family] = c.loser.LoadBalancerVIPs[c.family] },
		"node port":   func(c *contest) { c.owner.Ports[0].NodePort = c.loser.Ports[0].NodePort },
	}
	for _, family := range service.Families {
		for name, b := range map[string]struct {
			dataplane.Renderer
			losses int // in how many cases there is something to lose
		}{
			"iptables":  {iptrender.NewRenderer(family, iptrender.Options{MasqueradeBit: 14}), 8},
			"nftables":  {nftrender.NewRenderer(family, nftrender.Options{MasqueradeBit: 14}), 8},
			"ipvs":      {ipvsrender.NewRenderer(family, ipvsrender.Options{MasqueradeBit: 14}), 8},
			"userspace": {userspace.NewRenderer(userspace.Addresses, family, userspace.Settings{}), 3},
			"nodeports": {userspace.NewRenderer(userspace.NodePorts, family, userspace.Settings{}), 1},
		} {
			losses := 0
			for what, take := range takes {
				for _, endpoints := range []bool{true, false} {
					t.Run(fmt.Sprintf("%v/%s/%s/%v", family, name, what, endpoints), func(t *testing.T) {
						c := newContest(t, family, endpoints)
						take(c)
						losses += min(c.check(b.Renderer), 1)
					})
				}
				t.Run(fmt.Sprintf("%v/%s/%s/passed", family, name, what), func(t *testing.T) {
					c := newContest(t, family, false)
					c.loser.NoEndpoints = service.NoEndpointsPass // some of its frontends have no rule anyway
					take(c)
					c.check(b.Renderer)
				})
			}
			if losses != b.losses {
				t.Errorf("%v, %s: the Service loses something in %d cases, want %d", family, name, losses, b.losses)
			}
		}
	}
}
