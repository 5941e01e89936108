// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	iptrender "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	ipvsrender "github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/dataplane/localport"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/service"
)

// wish is what a Service asks for, per port where it can.
type wish struct{ ports, addresses, vips, ranges, denied, endpoints int }

func (w wish) spec() *service.Spec {
	s := &service.Spec{Key: service.Key{Namespace: "ns", Name: "a"}}
	s.ClusterIPs[service.IPv4] = netip.MustParseAddr("172.30.0.41")
	next := func(from string, n int) (all []netip.Addr) {
		a := netip.MustParseAddr(from)
		for range n {
			all = append(all, a)
			a = a.Next()
		}
		return all
	}
	s.ExternalIPs[service.IPv4] = next("198.18.0.1", w.addresses)
	s.LoadBalancerVIPs[service.IPv4] = next("198.19.0.1", w.vips)
	for i, a := range next("203.0.113.1", 2*w.ranges) {
		if i%2 == 0 { // neighbors would be merged
			s.SourceRanges[service.IPv4] = append(s.SourceRanges[service.IPv4], netip.PrefixFrom(a, 32))
		}
	}
	for i, a := range next("203.0.114.1", 2*w.denied) {
		if i%2 == 0 {
			s.DenyRanges[service.IPv4] = append(s.DenyRanges[service.IPv4], netip.PrefixFrom(a, 32))
		}
	}
	for i := range w.ports {
		s.Ports = append(s.Ports, service.Port{Name: fmt.Sprint("p", i), Port: uint16(1 + i), NodePort: uint16(30000 + i)})
	}
	return s
}

func (w wish) slice() *service.Slice {
	s := &service.Slice{Name: "s", Service: w.spec().Key}
	for i := range w.ports {
		s.Ports = append(s.Ports, service.SlicePort{Name: fmt.Sprint("p", i), Port: 8080})
	}
	a := netip.MustParseAddr("10.0.0.1")
	for range w.endpoints {
		s.Endpoints = append(s.Endpoints, service.SliceEndpoint{Addr: a, Ready: true, Serving: true})
		a = a.Next()
	}
	return s
}

// TestRenderers_SizeMatchesOutput: the number of objects for the limit is within a factor of two of the rendered objects,
// in every dimension in which a Service can grow. Entries of a list in a body count like objects.
func TestRenderers_SizeMatchesOutput(t *testing.T) {
	hosts := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3")}
	for name, b := range map[string]struct {
		renderers []dataplane.Renderer
		layout    service.Layout
		// host says that each address of the host is served separately.
		host bool
		// lists is what each entry of a list in a body contains.
		lists string
	}{
		"nftables": {[]dataplane.Renderer{nftrender.NewRenderer(service.IPv4, nftrender.Options{MasqueradeBit: 14}), localport.NewRenderer(service.IPv4)}, service.SlotsEach, false, ""},
		"ipvs":     {[]dataplane.Renderer{ipvsrender.NewRenderer(service.IPv4, ipvsrender.Options{MasqueradeBit: 14})}, service.EndpointsEach, true, "line"},
		"iptables": {[]dataplane.Renderer{iptrender.NewRenderer(service.IPv4, iptrender.Options{MasqueradeBit: 14})}, service.EndpointsOnce, false, "line"},
		"userspace": {[]dataplane.Renderer{userspace.NewRenderer(userspace.Addresses, service.IPv4, userspace.Settings{}),
			userspace.NewRenderer(userspace.NodePorts, service.IPv4, userspace.Settings{})}, service.SlotsEach, true, ":8080 /32"},
	} {
		facts := &service.NodeFacts{Name: "n", Limit: service.Limit{Objects: 1, Layout: b.layout}}
		facts.NodePorts[service.IPv4] = service.NodePortAddresses{All: true}
		if b.host {
			facts.NodePorts[service.IPv4].Host = hosts
		}
		unlimited := *facts
		unlimited.Limit.Objects = 0
		for _, w := range []wish{
			{ports: 1, endpoints: 1000}, {ports: 100, endpoints: 10}, {ports: 10, addresses: 100, endpoints: 10},
			{ports: 100, addresses: 100, endpoints: 1}, {ports: 10, vips: 20, ranges: 50, endpoints: 1}, {ports: 20, addresses: 50},
			{ports: 10, addresses: 20, denied: 250, endpoints: 1}, {ports: 10, vips: 1, denied: 250},
		} {
			spec, slices := w.spec(), []*service.Slice{w.slice()}
			counted := service.Resolve(spec.Key, spec, slices, facts).Excess.Objects
			view := service.Resolve(spec.Key, spec, slices, &unlimited)
			rendered := 0
			for _, r := range b.renderers {
				for _, o := range dataplane.NewFragment(spec.Key, r.Service(context.Background(), &view, &unlimited)).Objects {
					rendered++
					for separator := range strings.FieldsSeq(b.lists) {
						rendered += strings.Count(o.Body, strings.ReplaceAll(separator, "line", "\n"))
					}
				}
			}
			t.Logf("%s %+v: counted %d, rendered %d", name, w, counted, rendered)
			// Without endpoints less may be rendered, but that is one change away.
			if rendered > 2*counted+100 || w.endpoints > 0 && counted > 2*rendered+100 {
				t.Errorf("%s %+v: counted %d, rendered %d", name, w, counted, rendered)
			}
		}
	}
}

// ending is a context that ends when it has been polled a few times.
type ending struct {
	context.Context
	polls int
}

func (e *ending) Err() error {
	if e.polls--; e.polls < 0 {
		return context.Canceled
	}
	return nil
}

// TestRenderers_PollContext: renderers stop soon after their context ends, so that an abandoned actor does not go on
// rendering in parallel with its replacement.
func TestRenderers_PollContext(t *testing.T) {
	w := wish{ports: 100, addresses: 100, endpoints: 10}
	spec, facts := w.spec(), &service.NodeFacts{Name: "n"}
	view := service.Resolve(spec.Key, spec, []*service.Slice{w.slice()}, facts)
	for name, renderer := range map[string]dataplane.Renderer{
		"nftables":  nftrender.NewRenderer(service.IPv4, nftrender.Options{MasqueradeBit: 14}),
		"ipvs":      ipvsrender.NewRenderer(service.IPv4, ipvsrender.Options{MasqueradeBit: 14}),
		"iptables":  iptrender.NewRenderer(service.IPv4, iptrender.Options{MasqueradeBit: 14}),
		"userspace": userspace.NewRenderer(userspace.Addresses, service.IPv4, userspace.Settings{}),
	} {
		whole := len(renderer.Service(t.Context(), &view, facts))
		if part := len(renderer.Service(&ending{t.Context(), 3}, &view, facts)); part > whole/20 {
			t.Errorf("%s: %d of %d objects after the context ended", name, part, whole)
		}
	}
}
