package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
)

// Proxy is one running proxy. It implements source.Sink, which is how the cache
// posts to the actors.
type Proxy struct {
	config      Config
	cache       *source.Cache
	facts       *facts
	supervisor  *supervisor.Supervisor[service.Key]
	directory   *actors.Directory
	aggregators []*aggregator.Aggregator
}

var _ source.Sink = (*Proxy)(nil)

// New assembles a proxy; Run starts it. Nothing is touched before that.
func New(config Config) (*Proxy, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	p := &Proxy{config: config, facts: newFacts(config.Node)}
	p.cache = source.NewCache(p, source.Options{Warn: config.Warn})
	for _, domain := range config.Domains {
		if err := p.addAggregator(domain); err != nil {
			return nil, err
		}
	}
	if err := p.addSupervisor(); err != nil {
		return nil, err
	}
	return p, p.addDirectory()
}

// fragments ──► aggregator ──► writer
//
//	│
//	└─ verdicts ──► directory
func (p *Proxy) addAggregator(domain Domain) error {
	a, err := aggregator.New(aggregator.Config{
		Domain: domain.Name, Writer: domain.Writer, Layout: domain.Layout, Pace: domain.Pace,
		GateWait: p.config.GateWait,
		Verdicts: func(v dataplane.Verdict) { p.directory.PostVerdict(v) },
		Listen: func(e aggregator.Event) {
			for _, l := range p.config.Listeners {
				l.Aggregator(e)
			}
		},
	})
	p.aggregators = append(p.aggregators, a)
	return err
}

// addSupervisor wires the actors' keeper. A failing actor is excused at the
// gates, so that one poisoned Service does not hold up the first write.
func (p *Proxy) addSupervisor() (err error) {
	config := p.config.Supervisor
	config.Listen = func(e supervisor.Event) {
		if child, failed := gaveUp(e); failed {
			for _, a := range p.aggregators {
				a.Excuse(service.ParseKey(child))
			}
		}
		for _, l := range p.config.Listeners {
			l.Supervisor(e)
		}
	}
	p.supervisor, err = supervisor.New(config, service.Key.String)
	return err
}

// gaveUp gives the child of an event that means "not soon".
func gaveUp(e supervisor.Event) (child string, failed bool) {
	switch e := e.(type) {
	case supervisor.Parked:
		return e.Child, true
	case supervisor.Stuck:
		return e.Child, true
	default:
		return "", false
	}
}

// cache ──► directory ──► actors ──► fragments
func (p *Proxy) addDirectory() (err error) {
	config := actors.Config{
		Keeper: keeper{p.supervisor}, Truth: truth{p.snapshot, p.facts},
		MaxServices: p.config.MaxServices, Intercept: p.config.Intercept,
		Listen: func(e actors.Event) {
			for _, l := range p.config.Listeners {
				l.Actors(e)
			}
		},
	}
	for i, domain := range p.config.Domains {
		config.Domains = append(config.Domains, actors.Domain{
			Name: domain.Name, Renderer: domain.Renderer, Submit: p.aggregators[i].Submit,
		})
	}
	p.directory, err = actors.NewDirectory(config)
	return err
}

// Run serves until the context ends, or something fails that the proxy cannot
// do without. The rules stay in the kernel.
func (p *Proxy) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.supervisor.Run(ctx) })
	for i, a := range p.aggregators {
		group.Go(func() error { return a.Run(ctx) })
		if w, ok := p.config.Domains[i].Writer.(dataplane.Watcher); ok {
			group.Go(func() error { return stopped(ctx, w.Watch(ctx, a.AuditSoon)) })
		}
	}
	if follow := p.config.HostAddresses; follow != nil {
		group.Go(func() error { return stopped(ctx, follow(ctx, p.hostAddresses)) })
	}
	p.directory.Start()
	group.Go(func() error {
		if err := stopped(ctx, p.config.Source(ctx, p.cache)); err != nil {
			return fmt.Errorf("source: %w", err)
		}
		return nil
	})
	return group.Wait()
}

// stopped forgives the errors of those that were told to stop.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Status gives the newest snapshot of every domain.
func (p *Proxy) Status() []aggregator.Status {
	var all []aggregator.Status
	for _, a := range p.aggregators {
		all = append(all, a.Status())
	}
	return all
}

// Services is the number of Services that have an actor.
func (p *Proxy) Services() int { return p.directory.Len() - 1 }

// PostSpec tells a Service's actor what the Service is now; for source.Cache.
func (p *Proxy) PostSpec(key service.Key, spec *service.Spec) {
	p.directory.PostSpec(key, spec, actors.Cause{Received: time.Now()})
}

// PostSlice tells a Service's actor what one slice is now; for source.Cache.
func (p *Proxy) PostSlice(key service.Key, name string, slice *service.Slice) {
	cause := actors.Cause{Received: time.Now()}
	if slice != nil {
		cause.Trigger = slice.Trigger
	}
	p.directory.PostSlice(key, name, slice, cause)
}

// PostNode tells everybody what the Node object says now; for source.Cache.
func (p *Proxy) PostNode(node *service.NodeObject) {
	p.changeFacts(func(f *facts) { f.node = node })
}

// PostServiceCIDRs tells everybody the ranges of ClusterIPs; for source.Cache.
func (p *Proxy) PostServiceCIDRs(cidrs []netip.Prefix) {
	p.changeFacts(func(f *facts) { f.cidrs = cidrs })
}

// Primed opens the gates once the named Services have submitted; for
// source.Cache.
func (p *Proxy) Primed(keys []service.Key) {
	expected := append([]service.Key{service.Node}, keys...)
	for _, a := range p.aggregators {
		a.Prime(expected)
	}
}

func (p *Proxy) hostAddresses(all []netip.Addr) {
	p.changeFacts(func(f *facts) { f.hosts = all })
}

func (p *Proxy) changeFacts(change func(*facts)) {
	if next := p.facts.update(change); next != nil {
		p.directory.PostFacts(next)
	}
}

func (p *Proxy) snapshot(key service.Key) actors.Snapshot {
	if key == service.Node {
		return actors.Snapshot{}
	}
	s := p.cache.Snapshot(key)
	return actors.Snapshot{Spec: s.Spec, Slices: s.Slices}
}
