package faults

import (
	"context"
	"errors"
	"testing"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/conntrack"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

// process is one life of the proxy.
type process struct {
	proxy   *proxy.Proxy
	cache   *source.Cache
	witness *witness
	domains service.PerFamily[*domain]
	// halt tells it to end; ended carries what Run has returned.
	halt  context.CancelFunc
	ended chan error
}

// newProcess runs a proxy that finds the whole cluster.
func (p *plant) newProcess() *process {
	p.Helper()
	x := &process{witness: &witness{}, ended: make(chan error, 1)}
	var domains []proxy.Domain
	for _, family := range service.Families {
		d := p.newDomain(family)
		x.domains[family] = d
		domains = append(domains, proxy.Domain{Name: d.name, Family: family, Renderer: d.poison, Writer: d.notary})
	}
	filled := make(chan *source.Cache, 1)
	config := proxy.Config{
		Node: proxy.NodeSettings{Name: "node"}, Domains: domains, Listeners: []observe.Listener{x.witness},
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
	cleaner, err := conntrack.New(conntrack.Config{
		NodePorts: func(family service.Family) service.NodePortAddresses { return x.proxy.Facts().NodePorts[family] },
		Inside:    p.network.node.Do,
	})
	check(p, err)
	config.Followers = []proxy.Follower{cleaner}
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

// end lets the proxy end in an orderly way, and fails for what was wrong during its
// life.
func (x *process) end(t *testing.T) {
	t.Helper()
	x.halt()
	check(t, <-x.ended)
	for _, d := range x.domains {
		d.end(t)
	}
	for _, e := range x.witness.failed {
		t.Errorf("an actor failed: %+v", e)
	}
}
