// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	iptrender "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	ipvsrender "github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/dataplane/localport"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/service"
)

// sending are the backends that send to endpoints.
func sending(family service.Family) map[string]dataplane.Renderer {
	return map[string]dataplane.Renderer{
		"iptables":  iptrender.NewRenderer(family, iptrender.Options{MasqueradeBit: 14}),
		"nftables":  nftrender.NewRenderer(family, nftrender.Options{MasqueradeBit: 14}),
		"ipvs":      ipvsrender.NewRenderer(family, ipvsrender.Options{}),
		"userspace": userspace.NewRenderer(userspace.Addresses, family, userspace.Settings{}),
		"nodeports": userspace.NewRenderer(userspace.NodePorts, family, userspace.Settings{}),
		"localhost": localport.NewRenderer(family),
	}
}

// sentTo returns the endpoints that objects send to.
func sentTo(naming dataplane.Naming, objects []dataplane.Object) []string {
	to := map[string]bool{}
	for i := range objects {
		naming.Sends(&objects[i], func(at netip.AddrPort) { to[at.String()] = true })
	}
	return slices.Sorted(maps.Keys(to))
}

// TestSends_EveryEndpointOfEveryBackend: every backend's naming reports exactly the endpoints that get new connections.
// In IPVS mode, other endpoints keep their flows.
func TestSends_EveryEndpointOfEveryBackend(t *testing.T) {
	endpoints := service.PerFamily[[3]string]{
		{"10.0.0.1:8080", "10.0.0.2:8081", "10.0.0.3:8080"}, {"[fd00::1]:8080", "[fd00::2]:8081", "[fd00::3]:8080"},
	}
	for _, family := range service.Families {
		first, second, leaving := service.Endpoint{AddrPort: netip.MustParseAddrPort(endpoints[family][0]), Local: true},
			service.Endpoint{AddrPort: netip.MustParseAddrPort(endpoints[family][1])}, service.Endpoint{AddrPort: netip.MustParseAddrPort(endpoints[family][2])}
		for what, change := range map[string]func(*service.PortView, *service.View){
			"plain":    func(*service.PortView, *service.View) {},
			"affinity": func(p *service.PortView, _ *service.View) { p.AffinitySeconds = 600 },
			"local":    func(p *service.PortView, _ *service.View) { p.ExternalLocal, p.Local = true, p.Cluster[:1] },
			"hashed":   func(_ *service.PortView, v *service.View) { v.Balancing = service.Balancing(1) },
		} {
			port := shadowable(family, first, second)
			view := &service.View{Key: service.Key{Namespace: "ns", Name: "a"}}
			change(&port, view)
			for name, renderer := range sending(family) {
				of := port
				if name == "ipvs" {
					of.Protocol, of.Serving = service.UDP, []service.Endpoint{first, second, leaving}
				}
				view.Ports[family] = []service.PortView{of}
				facts := &service.NodeFacts{}
				facts.NodePorts[family].Addresses = []netip.Addr{map[service.Family]netip.Addr{
					service.IPv4: netip.MustParseAddr("127.0.0.1"), service.IPv6: netip.MustParseAddr("::1")}[family]}
				objects := renderer.Service(context.Background(), view, facts)
				if got, want := sentTo(renderer.Naming(), objects), endpoints[family][:2]; !slices.Equal(got, want) {
					t.Errorf("%s %v, %s: told %q, want %q", name, family, what, got, want)
				}
			}
		}
	}
}

// TestSends_OtherObjectsSendNowhere: objects with truncated or unrelated contents are not read as endpoints.
func TestSends_OtherObjectsSendNowhere(t *testing.T) {
	whole := "\x10\x00\x02\x00\x0c\x00\x01\x00\x0a\x00\x00\x01\x1f\x90\x00\x00"
	for cut := range len(whole) + 1 {
		o := dataplane.Object{ID: dataplane.ID{Container: in("local-endpoints")}, Kind: dataplane.Element, Body: whole[:cut]}
		if got := sentTo(nftrender.Naming{}, []dataplane.Object{o}); len(got) != map[bool]int{true: 1}[cut == len(whole)] {
			t.Errorf("%d bytes: %q", cut, got)
		}
	}
	for _, naming := range []dataplane.Naming{iptrender.Naming{}, nftrender.Naming{}, ipvsrender.Naming{}, userspace.Naming{}, localport.Naming{}} {
		for _, container := range []string{"nat", "filter", ipvsrender.ContainerServer, "listener", "address", ""} {
			for _, body := range []string{"", "\n", "-j DNAT --to-destination ", "rr 0x1 0\nx", "rr 0x1 0\n10.0.0.1:80 0", "to ", "to x", "keep 10.0.0.1:80"} {
				o := dataplane.Object{ID: dataplane.ID{Container: container}, Body: body}
				if got := sentTo(naming, []dataplane.Object{o}); len(got) != 0 {
					t.Errorf("%T: %q in %q: %q", naming, body, container, got)
				}
			}
		}
	}
}
