// SPDX-License-Identifier: Apache-2.0

//go:build ipvs

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/rendertest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// cluster is a node with IPVS, a pod of its own, a pod elsewhere (which answers, as
// it would on another node, by a way of its own) and a client outside:
//
//	p1 ── node ── far
//	       │ └─── x
type cluster struct {
	testNode
	rendertest.World
	p1, far, x *netns.Namespace
	facts      *service.NodeFacts
}

// newCluster makes the namespaces, with the addresses of the world: the node has
// its first, p1 the first endpoint's and far the third's.
func newCluster(t *testing.T, family service.Family, variant string) *cluster {
	t.Helper()
	w := rendertest.WorldOf(family)
	c := &cluster{testNode: *newTestNode(t, family, variant), World: w, facts: w.Facts()}
	outside := w.Allowed.Addr().Next()
	for _, peer := range []struct {
		namespace **netns.Namespace
		name      string
		addr, own netip.Addr
	}{
		{&c.p1, "p1", w.EndpointAddrs[0], w.Node},
		{&c.far, "far", w.EndpointAddrs[2], w.Node},
		{&c.x, "x", outside, w.Node},
	} {
		other := newTestNode(t, family, variant)
		*peer.namespace = other.Namespace
		spec := netns.LinkSpec{NameA: "to-" + peer.name, NameB: "eth0"}
		spec.AddrsA = []netip.Prefix{netip.PrefixFrom(peer.own, peer.own.BitLen())}
		spec.AddrsB = []netip.Prefix{netip.PrefixFrom(peer.addr, peer.addr.BitLen())}
		if err := netns.Link(c.Namespace, other.Namespace, spec); err != nil {
			t.Fatal(err)
		}
		c.must(c.AddLinkRoute(netip.PrefixFrom(peer.addr, peer.addr.BitLen()), spec.NameA))
		c.must(other.AddLinkRoute(netip.PrefixFrom(peer.own, peer.own.BitLen()), "eth0"))
		c.must(other.AddRoute(netip.PrefixFrom(peer.own, 0).Masked(), peer.own))
	}
	c.must(c.Sysctl("net/ipv4/ip_forward", "1"))
	c.must(c.Sysctl("net/ipv6/conf/all/forwarding", "1"))
	c.must(c.Sysctl("net/ipv4/vs/conntrack", "1"))
	for _, at := range []*netns.Namespace{c.p1, c.far} {
		addr := w.EndpointAddrs[0]
		if at == c.far {
			addr = w.EndpointAddrs[2]
		}
		backend, err := netnstest.StartBackend(at, map[*netns.Namespace]string{c.p1: "p1", c.far: "far"}[at], netip.AddrPortFrom(addr, 8080))
		c.must(err)
		t.Cleanup(func() { c.must(backend.Close()) })
	}
	return c
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// serve loads the scaffold and one Service.
func (c *cluster) serve(p service.PortView) {
	c.Helper()
	renderer := render.NewRenderer(c.World.Family, render.Options{MasqueradeBit: 14})
	objects := append(renderer.Node(c.facts), renderer.Service(context.Background(), c.View(p), c.facts)...)
	c.load(dataplane.NewFragment(service.Node, objects).Objects)
}

// expect asks for a Service, and wants the backend that answers, or none.
func (c *cluster) expect(from *netns.Namespace, to netip.Addr, port uint16, want string) netnstest.Answer {
	c.Helper()
	wait := testenv.Patience
	if want == "" {
		wait = time.Second
	}
	ctx, cancel := context.WithTimeout(c.Context(), wait)
	defer cancel()
	answer, err := netnstest.Ask(ctx, from, "tcp", netip.AddrPortFrom(to, port))
	if answer.Backend != want || (err == nil) != (want != "") {
		c.Errorf("%s:%d: answer %+v, error %v; want %q", to, port, answer, err, want)
	}
	return answer
}

// refused connects and expects to be refused at once.
func (c *cluster) refused(from *netns.Namespace, to netip.Addr, port uint16) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), testenv.Patience)
	defer cancel()
	answer, err := netnstest.Ask(ctx, from, "tcp", netip.AddrPortFrom(to, port))
	if !errors.Is(err, syscall.ECONNREFUSED) {
		c.Errorf("%s asks %s:%d: answer %+v, error %v; want it refused", from.Name(), to, port, answer, err)
	}
}

// eachKernel runs a test in both families, each with another variant of the tools:
// what they make of the rules is tested by itself.
func eachKernel(t *testing.T, test func(t *testing.T, c *cluster)) {
	variants := service.PerFamily[string]{"legacy", "nft"}
	for _, family := range service.Families {
		t.Run(fmt.Sprintf("%s/%s", family, variants[family]), func(t *testing.T) {
			test(t, newCluster(t, family, variants[family]))
		})
	}
}

// endpoint returns one of the world's three.
func (c *cluster) endpoint(i int) []service.Endpoint { return c.Endpoints(3)[i : i+1] }

// TestSourceRanges_BindNode: source ranges apply to processes of the node, whose packets IPVS translates before the
// filter table sees them.
func TestSourceRanges_BindNode(t *testing.T) {
	eachKernel(t, func(t *testing.T, c *cluster) {
		p := c.OpenPort()
		p.Cluster, p.SourceRanges = c.endpoint(2), []netip.Prefix{c.Allowed}
		c.serve(p)
		c.expect(c.x, c.VIP, 80, "far")
		c.expect(c.Namespace, c.VIP, 80, "")
		c.expect(c.p1, c.VIP, 80, "")
		c.expect(c.Namespace, c.External, 80, "far")
	})
}

// TestSourceRanges_WithNode: processes of the node are served if its address is in the source ranges.
func TestSourceRanges_WithNode(t *testing.T) {
	eachKernel(t, func(t *testing.T, c *cluster) {
		p := c.OpenPort()
		p.Cluster = c.endpoint(2)
		p.SourceRanges, p.NodeInSourceRanges = []netip.Prefix{netip.PrefixFrom(c.Node, c.Node.BitLen())}, true
		c.serve(p)
		c.expect(c.x, c.VIP, 80, "")
		c.expect(c.Namespace, c.VIP, 80, "far")
	})
}

// TestExternalLocal_WithoutLocalEndpoint: without a local endpoint, pods and the node itself are served, and clients
// outside get no answer. Otherwise the answer would come from an address that they did not ask.
func TestExternalLocal_WithoutLocalEndpoint(t *testing.T) {
	eachKernel(t, func(t *testing.T, c *cluster) {
		p := c.OpenPort()
		p.ExternalLocal, p.Cluster = true, c.endpoint(2)
		c.serve(p)
		for _, to := range []netip.AddrPort{
			netip.AddrPortFrom(c.VIP, 80), netip.AddrPortFrom(c.External, 80), netip.AddrPortFrom(c.Node, 30080),
		} {
			c.expect(c.x, to.Addr(), to.Port(), "")
			c.expect(c.p1, to.Addr(), to.Port(), "far")
			if got := c.expect(c.Namespace, to.Addr(), to.Port(), "far"); got.Client.Addr() != c.Node {
				t.Errorf("%v: the node comes as %v, want its own address %v", to, got.Client, c.Node)
			}
		}
	})
}

// TestExternalLocal: with a local endpoint, clients outside keep their addresses.
func TestExternalLocal(t *testing.T) {
	eachKernel(t, func(t *testing.T, c *cluster) {
		p := c.OpenPort()
		p.ExternalLocal, p.Local, p.Cluster = true, c.endpoint(0), c.Endpoints(3)
		c.serve(p)
		for _, to := range []netip.AddrPort{
			netip.AddrPortFrom(c.VIP, 80), netip.AddrPortFrom(c.External, 80), netip.AddrPortFrom(c.Node, 30080),
		} {
			if got := c.expect(c.x, to.Addr(), to.Port(), "p1"); got.Client.Addr() != c.Allowed.Addr().Next() {
				t.Errorf("%v: the client comes as %v, want its own address", to, got.Client)
			}
			c.expect(c.Namespace, to.Addr(), to.Port(), "p1")
			c.expect(c.p1, to.Addr(), to.Port(), "p1")
		}
	})
}

// TestClusterIP: a ClusterIP answers at the Service's port and rejects other ports.
func TestClusterIP(t *testing.T) {
	eachKernel(t, func(t *testing.T, c *cluster) {
		p := c.Port()
		p.Cluster = c.endpoint(2)
		c.serve(p)
		c.expect(c.p1, c.ClusterIP, 80, "far")
		c.expect(c.Namespace, c.ClusterIP, 80, "far")
		c.refused(c.p1, c.ClusterIP, 22)
	})
}

// TestInternalLocal_WithoutLocalEndpoint: with the internal policy Local and no local endpoint, the ClusterIP rejects,
// and other frontends serve.
func TestInternalLocal_WithoutLocalEndpoint(t *testing.T) {
	eachKernel(t, func(t *testing.T, c *cluster) {
		p := c.OpenPort()
		p.InternalLocal, p.Cluster = true, c.endpoint(2)
		c.serve(p)
		c.refused(c.p1, c.ClusterIP, 80)
		c.refused(c.Namespace, c.ClusterIP, 80)
		c.expect(c.p1, c.VIP, 80, "far")
	})
}

// write lets a writer change the virtual servers to those of a view.
func (c *cluster) write(w *Writer, view *service.View) {
	c.Helper()
	read, err := w.Read(c.Context())
	c.must(err)
	found := map[dataplane.ID]*dataplane.Object{}
	for i := range read {
		found[read[i].ID] = &read[i]
	}
	batch := &dataplane.Batch{}
	renderer := render.NewRenderer(c.World.Family, render.Options{MasqueradeBit: 14})
	for _, o := range renderer.Service(c.Context(), view, c.facts) {
		if o.ID.Container == render.ContainerServer && !dataplane.Same(found[o.ID], &o) {
			batch.Changes = append(batch.Changes, dataplane.Change{ID: o.ID, Before: found[o.ID], After: &o, Owner: view.Key})
		}
	}
	if receipt := w.Write(c.Context(), batch); receipt.Outcome != dataplane.Landed {
		c.Fatal(receipt)
	}
}

// TestKernelGraceful: a leaving endpoint stays with weight 0 at the virtual server where it has a connection, and
// nowhere else.
func TestKernelGraceful(t *testing.T) {
	eachKernel(t, func(t *testing.T, c *cluster) {
		w, err := NewWriter(c.World.Family, Config{Rules: fakeRules{newFakeKernel()}.contract(), Inside: c.Do, DrainDeadline: time.Minute})
		c.must(err)
		defer func() { c.must(w.Close()) }()
		p := c.OpenPort()
		p.Cluster = c.endpoint(2)
		c.serve(p)
		leaving := p.Cluster[0].AddrPort
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
		defer cancel()
		session, err := netnstest.Connect(ctx, c.x, netip.AddrPortFrom(c.VIP, 80))
		c.must(err)
		defer func() { c.must(session.Close()) }()
		write := func() {
			t.Helper()
			c.write(w, c.View(p))
		}
		// at returns the weight of the endpoint at an address, or -1.
		at := func(addr netip.Addr) (weight int) {
			weight = -1
			c.must(w.take(t.Context()))
			defer w.give()
			found, err := w.kernel.servers.Destinations(t.Context(), service.Frontend{Addr: addr, Port: 80})
			c.must(err)
			for _, d := range found {
				if d.Addr == leaving {
					weight = int(d.Weight)
				}
			}
			return weight
		}
		p.Cluster = c.endpoint(0)
		write()
		for end := time.Now().Add(testenv.Patience); at(c.ClusterIP) >= 0; time.Sleep(lookMin / 4) {
			if time.Now().After(end) {
				t.Fatal("still there without a connection")
			}
		}
		if got := at(c.VIP); got != 0 || w.Leaving()[c.View(p).Key] != 1 {
			t.Errorf("weight %d with a connection, want 0; %v", got, w.Leaving())
		}
		p.Cluster = []service.Endpoint{c.Endpoints(3)[0], c.Endpoints(3)[2]}
		write()
		if got := at(c.VIP); got != 1 || len(w.Leaving()) != 0 {
			t.Errorf("weight %d when it is back, want 1; %v", got, w.Leaving())
		}
	})
}

// TestGraceful_EndpointLeavesHashedService: while an endpoint of a hashed Service leaves with a connection, the other
// endpoint serves the clients whose hash selects the leaving one.
func TestGraceful_EndpointLeavesHashedService(t *testing.T) {
	for _, by := range []service.Balancing{service.SourceHash, service.ConnectionHash} {
		eachKernel(t, func(t *testing.T, c *cluster) {
			w, err := NewWriter(c.World.Family, Config{Rules: fakeRules{newFakeKernel()}.contract(), Inside: c.Do, DrainDeadline: time.Minute})
			c.must(err)
			defer func() { c.must(w.Close()) }()
			p := c.Port()
			p.Cluster = []service.Endpoint{c.Endpoints(3)[0], c.Endpoints(3)[2]}
			c.serve(p)
			view := c.View(p)
			view.Balancing = by
			c.write(w, view)
			ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
			defer cancel()
			session, err := netnstest.Connect(ctx, c.x, netip.AddrPortFrom(c.ClusterIP, 80))
			c.must(err)
			defer func() { c.must(session.Close()) }()
			leaving, stays := 0, "far"
			if session.Answer().Backend == "far" {
				leaving, stays = 1, "p1"
			}
			p.Cluster = slices.Delete(p.Cluster, leaving, leaving+1)
			view = c.View(p)
			view.Balancing = by
			c.write(w, view)
			if w.Leaving()[view.Key] != 1 {
				t.Errorf("leaving: %v, want one endpoint with the connection", w.Leaving())
			}
			for range 20 {
				c.expect(c.x, c.ClusterIP, 80, stays)
			}
		})
	}
}

// TestBalancing: weights determine shares, and hashes send a client to one endpoint with all its connections or with
// each of its ports.
func TestBalancing(t *testing.T) {
	const asked = 80
	for _, test := range []struct {
		by     service.Balancing
		weight uint16
		// fits reports whether so many connections may reach the second endpoint.
		fits func(n int) bool
	}{
		{service.RoundRobin, 3, func(n int) bool { return n == asked*3/4 }},
		{service.Random, 1, func(n int) bool { return n == asked/2 }}, // the scheduler of the node is rr
		{service.SourceHash, 1, func(n int) bool { return n == 0 || n == asked }},
		{service.ConnectionHash, 1, func(n int) bool { return n > asked/5 && n < asked*4/5 }},
	} {
		eachKernel(t, func(t *testing.T, c *cluster) {
			p := c.Port()
			p.Cluster = []service.Endpoint{c.Endpoints(3)[0], c.Endpoints(3)[2]}
			p.Cluster[1].Weight = test.weight
			view := c.View(p)
			view.Balancing = test.by
			renderer := render.NewRenderer(c.World.Family, render.Options{MasqueradeBit: 14})
			objects := append(renderer.Node(c.facts), renderer.Service(t.Context(), view, c.facts)...)
			c.load(dataplane.NewFragment(service.Node, objects).Objects)
			second := 0
			for range asked {
				ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
				answer, err := netnstest.Ask(ctx, c.x, "tcp", netip.AddrPortFrom(c.ClusterIP, 80))
				cancel()
				c.must(err)
				if answer.Backend == "far" {
					second++
				}
			}
			if !test.fits(second) {
				t.Errorf("%v with weights 1 and %d: %d of %d connections at the second endpoint", test.by, test.weight, second, asked)
			}
		})
	}
}
