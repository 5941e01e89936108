// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/rendertest"
)

const quickSeeds = 500

// TestRender_Quick: random Services render to objects that can be read back and whose sets and device exist. The order
// of ports with different frontends makes no difference.
func TestRender_Quick(t *testing.T) {
	for seed := range uint64(quickSeeds) {
		family := service.Families[seed%2]
		random := rand.New(rand.NewPCG(seed, 0))
		w := rendertest.WorldOf(family)
		facts := w.Facts()
		facts.NodePorts[family].All = random.IntN(2) == 0
		facts.NodePorts[family].Addresses = someOf(random, []netip.Addr{w.Loopback, w.Node, w.Second})
		var ports []service.PortView
		for i := range 1 + random.IntN(3) {
			ports = append(ports, randomPort(w, random, i))
		}
		view := w.View(ports...)
		renderer := render.NewRenderer(family, render.Options{MasqueradeBit: 14})
		objects := renderer.Service(context.Background(), view, facts)
		name := fmt.Sprintf("seed %d", seed)
		checkRefs(t, name, scaffoldOf(family), objects)
		for _, o := range objects {
			if err := readable(family, &o); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		checkReals(t, name, ports, objects)

		first := dataplane.NewFragment(view.Key, objects)
		slices.Reverse(view.Ports[family])
		second := dataplane.NewFragment(view.Key, renderer.Service(context.Background(), view, facts))
		if !reflect.DeepEqual(first.Objects, second.Objects) {
			t.Errorf("%s: the order of ports counts:\n%s\n%s", name, listing(first.Objects), listing(second.Objects))
		}
		if t.Failed() {
			return
		}
	}
}

// randomPort is the ith port: its numbers are its own.
func randomPort(w rendertest.World, random *rand.Rand, i int) service.PortView {
	yes := func() bool { return random.IntN(2) == 0 }
	p := service.PortView{
		Name: fmt.Sprintf("p%d", i), Protocol: service.Protocol(random.IntN(3)), Port: uint16(80 + i), ClusterIP: w.ClusterIP,
		InternalLocal: yes(), ExternalLocal: yes(), NodeInSourceRanges: yes(), AffinitySeconds: 100 * random.IntN(2),
	}
	if yes() {
		p.NodePort = uint16(30000 + i)
	}
	p.ExternalIPs = someOf(random, []netip.Addr{w.External, w.Node})
	p.LoadBalancerVIPs = someOf(random, []netip.Addr{w.VIP, w.Second})
	p.SourceRanges = someOf(random, []netip.Prefix{w.Allowed, netip.PrefixFrom(w.Node, w.Node.BitLen())})
	for _, e := range w.Endpoints(3) {
		e.AddrPort = netip.AddrPortFrom(e.AddrPort.Addr(), uint16(8080+i))
		switch random.IntN(4) {
		case 0:
		case 1:
			p.Serving = append(p.Serving, e)
		default:
			p.Serving = append(p.Serving, e)
			p.HasAny = true
			p.Cluster = append(p.Cluster, e)
			if e.Local {
				p.Local = append(p.Local, e)
			}
		}
	}
	slices.SortFunc(p.Cluster, service.Endpoint.Compare)
	slices.SortFunc(p.Serving, service.Endpoint.Compare)
	if p.Protocol != service.UDP {
		p.Serving = nil
	}
	return p
}

func someOf[T any](random *rand.Rand, all []T) (some []T) {
	for _, each := range all {
		if random.IntN(2) == 0 {
			some = append(some, each)
		}
	}
	return some
}

// readable returns what is wrong with an object of a Service, as the writer reads it.
func readable(family service.Family, o *dataplane.Object) error {
	if set, isEntry := render.EntrySet(o.ID); isEntry {
		for _, spec := range render.Sets(family) {
			if spec.Name == set {
				e, err := wire.ParseEntry(spec.Type, o.ID.Name)
				if err == nil && e.String() != o.ID.Name {
					err = fmt.Errorf("entry %q of %s becomes %q", o.ID.Name, set, e)
				}
				return err
			}
		}
		return fmt.Errorf("no set for %v", o.ID)
	}
	if o.ID.Container == render.ContainerAddress {
		_, err := render.ParseAddress(o.ID)
		return err
	}
	s, err := render.ParseServer(o)
	if err != nil {
		return err
	}
	ordered := slices.IsSortedFunc(s.Reals, func(a, b wire.Real) int {
		return service.Endpoint{AddrPort: a.Addr}.Compare(service.Endpoint{AddrPort: b.Addr})
	})
	if again := s.Object(); again.Body != o.Body || !ordered {
		return fmt.Errorf("%v: %q becomes %q, or its real servers have no order", o.ID, o.Body, again.Body)
	}
	return nil
}

// checkReals compares the real servers with what the policies say.
func checkReals(t *testing.T, name string, ports []service.PortView, objects []dataplane.Object) {
	t.Helper()
	for _, o := range objects {
		s, err := render.ParseServer(&o)
		if err != nil {
			continue
		}
		i := slices.IndexFunc(ports, func(p service.PortView) bool {
			return p.Protocol == s.Protocol && (p.Port == s.Port || p.NodePort == s.Port)
		})
		p := &ports[i]
		want := p.Cluster
		switch internal := s.Addr == p.ClusterIP; {
		case internal && p.InternalLocal:
			want = p.Local
		case !internal && p.ExternalLocal && len(p.Local) > 0:
			want = p.Local
		}
		wanted := map[wire.Real]bool{}
		for _, e := range want {
			wanted[wire.Real{Addr: e.AddrPort, Weight: 1}] = true
		}
		got := map[wire.Real]bool{}
		for _, r := range s.Reals {
			got[r] = true
		}
		var keeps []netip.AddrPort
		for _, e := range p.Serving {
			if !wanted[wire.Real{Addr: e.AddrPort, Weight: 1}] {
				keeps = append(keeps, e.AddrPort)
			}
		}
		if !slices.Equal(s.Grace.Keeps, keeps) {
			t.Errorf("%s: %v keeps flows of %v, want %v", name, o.ID, s.Grace.Keeps, keeps)
		}
		if !reflect.DeepEqual(got, wanted) || len(got) != len(s.Reals) {
			t.Errorf("%s: %v has %v, want %v", name, o.ID, s.Reals, wanted)
		}
	}
}
