// SPDX-License-Identifier: Apache-2.0

package cleaner_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/conntrack/cleaner"
	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	iptrender "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// world is a node with real rules between a client and endpoints:
//
//	client .1.2 ── .1.1 node .2.1 ── .2.2 … pods
//
// The real renderer and writer write what is served. Then the cleaner gets the view, as in
// the pipeline.
type world struct {
	testing.TB
	plan
	family             service.Family
	network            *netnstest.Network
	client, node, pods *netns.Namespace
	renderer           dataplane.Renderer
	writer             dataplane.Writer
	ledger             *ledger.Ledger
	facts              service.NodeFacts
	// legacy restores the rules of iptables mode, if nft does not see them.
	legacy   string
	sequence uint64
	// outsiders answer clients that meet no rule, after a journey.
	outsiders []*netnstest.Backend
	journey   time.Duration
	cleaner   *cleaner.Cleaner
	stop      func()
	// gather is that of the next cleaner.
	gather time.Duration

	mu    sync.Mutex
	swept []cleaner.Swept
}

// plan has the addresses of everything.
type plan struct {
	client, node, nodeInside netip.Prefix
	// a, b and c are endpoints, and stranger is a host that no Service knows.
	a, b, c, stranger   netip.Prefix
	clusterIP, external netip.Addr
	pods, services      netip.Prefix
	everything          netip.Prefix
}

var plans = service.PerFamily[plan]{
	service.IPv4: {
		client: prefix("192.0.2.2/24"), node: prefix("192.0.2.1/24"), nodeInside: prefix("10.0.2.1/24"),
		a: prefix("10.0.2.2/24"), b: prefix("10.0.2.3/24"), c: prefix("10.0.2.4/24"), stranger: prefix("10.0.2.9/24"),
		clusterIP: addr("10.96.0.10"), external: addr("198.51.100.7"),
		pods: prefix("10.0.2.0/24"), services: prefix("10.96.0.0/16"), everything: prefix("0.0.0.0/0"),
	},
	service.IPv6: {
		client: prefix("2001:db8:1::2/64"), node: prefix("2001:db8:1::1/64"), nodeInside: prefix("fd10:2::1/64"),
		a: prefix("fd10:2::2/64"), b: prefix("fd10:2::3/64"), c: prefix("fd10:2::4/64"), stranger: prefix("fd10:2::9/64"),
		clusterIP: addr("fd96::10"), external: addr("2001:db8:7::7"),
		pods: prefix("fd10:2::/64"), services: prefix("fd96::/112"), everything: prefix("::/0"),
	},
}

const (
	servicePort  = 53
	endpointPort = 5353
	nodePort     = 30053
	// hush is how long a silence must last.
	hush = 300 * time.Millisecond
)

// patience bounds the wait for what should come soon.
var patience = testenv.Patience

var dns = service.Key{Namespace: "ns1", Name: "dns"}

func addr(text string) netip.Addr     { return netip.MustParseAddr(text) }
func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

// eachFamily runs a test of logic that is the same for both families, in make test for IPv4.
func eachFamily(t *testing.T, test func(*world)) {
	for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
		t.Run(family.String(), func(t *testing.T) { test(newWorld(t, family)) })
	}
}

func newWorld(t testing.TB, family service.Family) *world {
	t.Helper()
	w := buildWorld(t, family)
	writer := nftkernel.NewWriter(family, nftkernel.WriterConfig{Inside: w.node.Do})
	t.Cleanup(func() { w.check(writer.Close()) })
	w.renderer, w.writer = nftrender.NewRenderer(family, nftrender.Options{MasqueradeBit: 14}), writer.Contract()
	w.ledger = ledger.New(nil, w.renderer.Naming(), nil)
	return w.furnish()
}

// newIPTablesWorld makes a node in iptables mode.
func newIPTablesWorld(t *testing.T, family service.Family, variant iptkernel.Variant) *world {
	t.Helper()
	t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "lock"))
	w := buildWorld(t, family)
	tool, err := iptkernel.NewExec(t.Context(), iptkernel.ExecConfig{Family: family, Variant: variant})
	w.check(err)
	if variant == iptkernel.Legacy {
		w.legacy = map[service.Family]string{service.IPv4: "iptables-legacy-restore", service.IPv6: "ip6tables-legacy-restore"}[family]
	}
	w.renderer = iptrender.NewRenderer(family, iptrender.Options{MasqueradeBit: 14, RandomFully: true})
	inside := insideWriter{iptkernel.NewWriter(family, tool, iptkernel.WriterConfig{}), w.node}
	w.writer = dataplane.Writer{Write: inside.Write, Read: inside.Read}
	w.ledger = ledger.New(iptrender.NewLayout(family), w.renderer.Naming(), nil)
	_, err = w.writer.Read(t.Context())
	w.check(err)
	return w.furnish()
}

// insideWriter writes in a network namespace.
type insideWriter struct {
	*iptkernel.Writer
	node *netns.Namespace
}

func (w insideWriter) Write(ctx context.Context, batch *dataplane.Batch) (receipt dataplane.Receipt) {
	err := w.node.Do(func() error { receipt = w.Writer.Write(ctx, batch); return nil })
	return dataplane.Receipt{Outcome: receipt.Outcome, Err: errors.Join(receipt.Err, err)}
}

func (w insideWriter) Read(ctx context.Context) (objects []dataplane.Object, err error) {
	err = w.node.Do(func() (err error) { objects, err = w.Writer.Read(ctx); return err })
	return objects, err
}

// buildWorld makes the network of a world.
func buildWorld(t testing.TB, family service.Family) *world {
	t.Helper()
	w := &world{TB: t, plan: plans[family], family: family}
	w.build()
	return w
}

// furnish writes the node's rules and starts the cleaner.
func (w *world) furnish() *world {
	w.Helper()
	family := w.family
	w.facts.Name = "n1"
	w.facts.Detect[family].CIDR = w.plan.pods
	w.facts.ServiceCIDRs[family] = []netip.Prefix{w.services}
	w.facts.NodePorts[family].All = true
	w.want(service.Node, w.renderer.Node(&w.facts))
	w.commit()
	w.start()
	return w
}

// build makes the network.
func (w *world) build() {
	plan := netnstest.Plan{
		Cables: []netns.Cable{{
			Router: "node", Leaf: "client", Port: "outside",
			AtRouter: []netip.Prefix{w.plan.node}, AtLeaf: []netip.Prefix{w.plan.client},
		}, {
			Router: "node", Leaf: "pods", Port: "inside",
			AtRouter: []netip.Prefix{w.nodeInside}, AtLeaf: []netip.Prefix{w.a, w.b, w.c, w.stranger},
		}},
		Routes: []netnstest.Route{{Host: "node", To: w.everything, Via: w.stranger.Addr()}},
	}
	for name, at := range map[string]netip.Prefix{"a": w.a, "b": w.b, "c": w.c} {
		plan.Servers = append(plan.Servers, netnstest.Server{
			Name: name, Host: "pods", At: netip.AddrPortFrom(at.Addr(), endpointPort),
		})
	}
	w.network = netnstest.Build(w, plan)
	hosts := w.network.Hosts
	w.client, w.node, w.pods = hosts["client"], hosts["node"], hosts["pods"]
	w.check(w.node.Sysctl("net.netfilter.nf_conntrack_acct", "1"))
}

func (w *world) backend(in *netns.Namespace, name string, at netip.AddrPort) {
	w.Helper()
	netnstest.Serve(w, in, name, at)
}

// start starts a process: a cleaner that knows nothing.
func (w *world) start() {
	var err error
	w.cleaner, err = cleaner.New(cleaner.Config{
		NodePorts: func(f service.Family) service.NodePortAddresses { return w.facts.NodePorts[f] },
		Inside:    w.node.Do,
		Gather:    w.gather,
		Drains:    true,
		Listen: func(e cleaner.Swept) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.swept = append(w.swept, e)
		},
	})
	w.check(err)
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.cleaner.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		w.check(<-ended)
	})
	w.Cleanup(w.stop)
}

// view returns the Service with these endpoints.
func (w *world) view(endpoints ...netip.Prefix) service.View {
	port := service.PortView{
		Name: "dns", Protocol: service.UDP, Port: servicePort, NodePort: nodePort,
		ClusterIP: w.clusterIP, ExternalIPs: []netip.Addr{w.external}, HasAny: len(endpoints) > 0,
	}
	for _, e := range endpoints {
		port.Cluster = append(port.Cluster, service.Endpoint{AddrPort: netip.AddrPortFrom(e.Addr(), endpointPort)})
	}
	slices.SortFunc(port.Cluster, service.Endpoint.Compare)
	port.Serving = port.Cluster
	view := service.View{Key: dns}
	view.Ports[w.family] = []service.PortView{port}
	return view
}

// gone returns the view of the deleted Service.
func gone() service.View { return service.View{Key: dns} }

// write writes the rules of a view.
func (w *world) write(view service.View) {
	w.Helper()
	w.want(view.Key, w.renderer.Service(context.Background(), &view, &w.facts))
	w.commit()
}

// serve writes a view and passes it to the cleaner.
func (w *world) serve(view service.View) cleaner.Swept {
	w.Helper()
	w.write(view)
	return w.tell(view)
}

// tell passes a view to the cleaner and waits for its sweep.
func (w *world) tell(view service.View) cleaner.Swept {
	w.Helper()
	w.cleaner.Programmed(context.Background(), w.family, view)
	return w.awaitSwept()
}

func (w *world) awaitSwept() cleaner.Swept {
	w.Helper()
	for began := time.Now(); time.Since(began) < patience; time.Sleep(time.Millisecond) {
		if swept := w.taken(); len(swept) > 0 {
			last := swept[len(swept)-1]
			w.check(last.Err)
			return last
		}
	}
	w.Fatalf("nothing was swept in %v", patience)
	return cleaner.Swept{}
}

// taken returns the sweeps since the last call.
func (w *world) taken() []cleaner.Swept {
	w.mu.Lock()
	defer w.mu.Unlock()
	swept := w.swept
	w.swept = nil
	return swept
}

func (w *world) want(key service.Key, objects []dataplane.Object) {
	w.sequence++
	f := dataplane.NewFragment(key, objects)
	f.Revision = service.Revision{Incarnation: 1, Sequence: w.sequence}
	f.Gone = key != service.Node && len(objects) == 0
	w.ledger.Want(f)
}

func (w *world) commit() {
	w.Helper()
	for batch := w.ledger.Plan(); batch != nil; batch = w.ledger.Plan() {
		receipt := w.writer.Write(w.Context(), batch)
		if receipt.Outcome != dataplane.Landed {
			w.Fatalf("write: %v", receipt)
		}
		w.ledger.Settle(batch, receipt)
	}
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// peer is a UDP client that keeps its socket, and so its port.
type peer struct {
	*world
	*netnstest.Flow
}

// dial makes a client of a target.
func (w *world) dial(target netip.Addr, port uint16) *peer {
	w.Helper()
	return w.dialFrom(w.client, target, port)
}

func (w *world) dialFrom(n *netns.Namespace, target netip.Addr, port uint16) *peer {
	w.Helper()
	return w.open(n, netip.AddrPort{}, netip.AddrPortFrom(target, port))
}

func (w *world) open(n *netns.Namespace, source, target netip.AddrPort) *peer {
	w.Helper()
	flow, err := netnstest.OpenFlow(w.Context(), n, source, target)
	w.check(err)
	w.Cleanup(func() { w.check(flow.Close()) })
	return &peer{w, flow}
}

// The results of a client that gets no answer, and of one that is refused.
const (
	silence = "silence"
	refused = "refused"
)

// ask sends one datagram. It returns the name of the backend that answers in time, and the
// client address that this has seen.
func (p *peer) ask(wait time.Duration) (who, client string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), wait)
	defer cancel()
	answer, err := p.Ask(ctx)
	var timeout net.Error
	switch {
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.EPERM): // the latter on the host itself
		return refused, ""
	case errors.As(err, &timeout) && timeout.Timeout():
		return silence, ""
	}
	p.check(err)
	return answer.Backend, answer.Client.String()
}

// expect fails unless a certain backend answers.
func (p *peer) expect(who, when string) {
	p.Helper()
	wait := patience
	if who == silence {
		wait = hush
	}
	if got, _ := p.ask(wait); got != who {
		p.Errorf("%s: %s answers, want %s", when, got, who)
	}
}

// packets returns the number of packets of the peer's flow in the node's table.
func (p *peer) packets() uint64 {
	p.Helper()
	all, err := netnstest.Conntrack(p.node)
	p.check(err)
	var total uint64
	for _, f := range all {
		if f.Source.Port() == p.Local().Port() && f.Protocol == unix.IPPROTO_UDP {
			total += f.Packets
		}
	}
	return total
}

// expectPackets fails unless the peer's flow has seen so many packets since it was made.
func (p *peer) expectPackets(want uint64, what string) {
	p.Helper()
	if got := p.packets(); got != want {
		p.Errorf("%s has seen %d packets since it was made, want %d", what, got, want)
	}
}

// expectDeleted fails unless the Service's change made the sweep delete so many flows.
func (w *world) expectDeleted(s cleaner.Swept, want int, when string) {
	w.Helper()
	if s.Deleted != want || s.Services[dns] != want || s.Family != w.family {
		w.Errorf("%s: %+v, want %d flows deleted because of %v", when, s, want, dns)
	}
}
