// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/conntrack/cleaner"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// proxyNode is a node with a running proxy. Tests can tamper with every part.
type proxyNode struct {
	*testing.T
	network *network
	// readers are apart from the proxy.
	readers service.PerFamily[*nftkernel.Writer]
	// foreignWrites counts the writes of other programs, twice each: when one begins and when it
	// ends.
	foreignWrites atomic.Int64
	// strikes counts what an interrupter writes, in the same way.
	strikes atomic.Int64
	// interrupter, if any, hears of the writes of its family.
	interrupter atomic.Pointer[interrupter]

	// transactionBytes is for the writers of the next process, quiet the number of quiet Services
	// that it finds.
	transactionBytes int
	quiet            int
	// watchEach, when set, makes the next process's writers watch one of so many writes.
	watchEach int
	// spoiled is what the kernel rejects of the next process, by family.
	spoiled service.PerFamily[map[service.Key]defect]
	*process
}

// newProxyNode makes a node without a proxy.
func newProxyNode(t *testing.T) *proxyNode {
	t.Helper()
	p := &proxyNode{T: t, network: newNetwork(t), quiet: quietServices}
	for _, family := range service.Families {
		reader := nftkernel.NewWriter(family, nftkernel.WriterConfig{Inside: p.network.node.Do})
		p.readers[family] = reader
		t.Cleanup(func() { check(t, reader.Close()) })
	}
	p.mustNFT(foreignTables)
	return p
}

// start runs a new proxy and waits until it serves the live Services.
func (p *proxyNode) start() {
	p.Helper()
	began := time.Now()
	p.process = p.newProcess()
	for i, d := range p.domains {
		for _, s := range liveServices {
			if _, rejected := p.spoiled[service.Families[i]][s.key()]; rejected {
				continue
			}
			p.events.await(p.T, "the first rules", began, applied(d.name, s.key()))
		}
	}
}

// stop ends the proxy.
func (p *proxyNode) stop() {
	p.Helper()
	p.end(p.T)
}

// read returns what the kernel holds of a family.
func (p *proxyNode) read(family service.Family) []dataplane.Object {
	p.Helper()
	objects, err := readWhole(p.Context(), p.readers[family])
	check(p, err)
	return objects
}

// readWhole reads until no write comes in between.
func readWhole(ctx context.Context, reader *nftkernel.Writer) ([]dataplane.Object, error) {
	for {
		objects, err := reader.Read(ctx)
		if !errors.Is(err, netlink.ErrInterrupted) {
			return objects, err
		}
	}
}

// nft runs nft on the node as another program would, and returns what it printed.
func (p *proxyNode) nft(commands string) (string, error) {
	p.foreignWrites.Add(1)
	defer p.foreignWrites.Add(1)
	return p.run(commands)
}

// ask runs nft for a command that changes nothing.
func (p *proxyNode) ask(commands string) string {
	p.Helper()
	for {
		said, err := p.run(commands)
		if err != nil && strings.Contains(err.Error(), unix.EINTR.Error()) {
			continue // the tables have changed while they were listed
		}
		check(p, err)
		return said
	}
}

func (p *proxyNode) run(commands string) (string, error) {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(commands)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := netnstest.Run(p.network.node, cmd); err != nil {
		return "", fmt.Errorf("nft: %s: %w: %s", commands, err, said.String())
	}
	return said.String(), nil
}

// mustNFT is nft for commands that have to work.
func (p *proxyNode) mustNFT(commands string) string {
	p.Helper()
	said, err := p.nft(commands)
	check(p, err)
	return said
}

// table is a family's table in nft's words.
func table(family service.Family) string {
	return service.PerFamily[string]{service.IPv4: "ip ", service.IPv6: "ip6 "}[family] + nftrender.TableName
}

// checkAdopted ends the proxy and starts another one over its rules. If that finds any difference,
// the first one's ledger or the kernel was wrong.
func (p *proxyNode) checkAdopted() {
	p.Helper()
	p.stop()
	began := time.Now()
	p.start()
	for _, d := range p.domains {
		audit := p.events.await(p.T, "the first audit", began, func(e aggregator.Event) bool {
			a, ok := e.(aggregator.AuditDone)
			return ok && a.Domain == d.name
		}).event.(aggregator.AuditDone)
		if audit.Err != nil || audit.Drift.Any() || audit.Drift.Equal == 0 {
			p.Errorf("%s: another proxy finds %+v, %v", d.name, audit.Drift, audit.Err)
		}
	}
}

// setPods changes the endpoints of a Service, in both families.
func (p *proxyNode) setPods(s liveService, pods ...int) {
	for _, family := range service.Families {
		p.cache.SetSlice(s.slice(family, pods...))
	}
}

// resize adds or removes quiet Services until there are so many.
func (p *proxyNode) resize(quiet int) {
	if quiet > p.quiet {
		fillQuiet(p.cache, p.quiet, quiet)
	} else {
		// Before they go: afterwards nothing of them is expected.
		for _, d := range p.domains {
			for n := quiet; n < p.quiet; n++ {
				d.renderer.forget(quietKey(n))
			}
		}
		removeQuiet(p.cache, quiet, p.quiet)
	}
	p.quiet = quiet
}

// process is one life of the proxy.
type process struct {
	proxy   *proxy.Proxy
	cache   *source.Cache
	events  *eventLog
	domains service.PerFamily[*domain]
	// halt ends it. ended carries what Run has returned.
	halt  context.CancelFunc
	ended chan error
}

// newsOnly switches periodic audits off, so that only an announcement by the kernel can bring a repair.
var newsOnly = aggregator.Pace{Audit: 24 * time.Hour}

// newProcess runs a proxy that finds the whole cluster.
func (p *proxyNode) newProcess() *process {
	p.Helper()
	x := &process{events: &eventLog{}, ended: make(chan error, 1)}
	var domains []proxy.Domain
	for _, family := range service.Families {
		d := p.newDomain(family)
		x.domains[family] = d
		domains = append(domains, proxy.Domain{Name: d.name, Family: family, Renderer: d.renderer, Writer: d.writer.Contract(), Pace: newsOnly})
	}
	filled := make(chan *source.Cache, 1)
	config := proxy.Config{
		Node: proxy.NodeSettings{Name: "node"}, Domains: domains, Listeners: []observe.Listener{x.events},
		Source: func(ctx context.Context, cache *source.Cache) error {
			fill(cache, p.quiet)
			cache.Prime()
			filled <- cache
			<-ctx.Done()
			return nil
		},
	}
	config.Node.ClusterCIDRs[service.IPv4] = prefixes("10.244.0.0/16")[0]
	config.Node.ClusterCIDRs[service.IPv6] = prefixes("fd00:10:244::/48")[0]
	cleaner, err := cleaner.New(cleaner.Config{
		NodePorts: func(family service.Family) service.NodePortAddresses { return x.proxy.Facts().NodePorts[family] },
		Inside:    p.network.node.Do,
	})
	check(p, err)
	config.ApplyObservers = []proxy.ApplyObserver{{
		Programmed: cleaner.Programmed, BeforeWrite: cleaner.Submitted, AfterRepair: cleaner.Repaired,
	}}
	x.proxy, err = proxy.New(config)
	check(p, err)
	ctx, halt := context.WithCancel(context.Background())
	x.halt = halt
	go func() {
		cleaned := make(chan error, 1)
		go func() { cleaned <- cleaner.Run(ctx) }()
		err := x.proxy.Run(ctx)
		x.ended <- errors.Join(err, <-cleaned)
	}()
	x.cache = <-filled
	return x
}

// end stops the proxy in an orderly way, and fails for what was wrong during its life.
func (x *process) end(t *testing.T) {
	t.Helper()
	x.halt()
	check(t, <-x.ended)
	for _, d := range x.domains {
		d.end(t)
	}
	for _, e := range x.events.failed {
		t.Errorf("an actor failed: %+v", e)
	}
}

// network is that of netnstest.NodePlan, with the pods of the live Services.
type network struct {
	client, node *netns.Namespace
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	var servers []netnstest.Server
	for _, s := range liveServices {
		for i := range s.pods() {
			for _, family := range service.Families {
				servers = append(servers, netnstest.Server{Name: s.podName(i), At: netip.AddrPortFrom(s.pod(family, i), podPort)})
			}
		}
	}
	n := netnstest.Build(t, netnstest.NodePlan(servers...))
	return &network{n.Hosts["client"], n.Hosts["node"]}
}

var prefixes = netns.Prefixes

// check ends the test at an error of its own set-up.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// addr returns the address of a family that a template yields for a number.
func addr(family service.Family, ipv4, ipv6 string, n int) netip.Addr {
	template := service.PerFamily[string]{service.IPv4: ipv4, service.IPv6: ipv6}[family]
	return netip.MustParseAddr(fmt.Sprintf(template, n))
}
