// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
)

// Proxy is one running proxy. It implements source.Sink: the cache posts to the
// actors through it.
type Proxy struct {
	config      Config
	cache       *source.Cache
	facts       *facts
	supervisor  *supervisor.Supervisor[service.Key]
	directory   *actors.Directory
	aggregators []*aggregator.Aggregator

	// primed is closed when the cache is complete, nodeKnown when the source has
	// delivered the Node, and hostsKnown when the host's addresses have been read.
	primed, nodeKnown, hostsKnown chan struct{}
	nodeOnce, hostsOnce           sync.Once
	// synced is when primed was closed.
	synced atomic.Pointer[time.Time]
	// open is set by start. Nothing is posted before: an actor that knew only part
	// of a Service would submit only part of it.
	open atomic.Bool
	// behind counts the domains whose first sync is not complete. allSynced is closed
	// when there is none. Auxiliary domains do not count unless they are awaited.
	behind    atomic.Int32
	allSynced chan struct{}
}

var _ source.Sink = (*Proxy)(nil)

// New assembles a proxy. Only Run changes anything outside the process.
func New(config Config) (*Proxy, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	p := &Proxy{config: config, facts: newFacts(config.Node), primed: make(chan struct{}),
		nodeKnown: make(chan struct{}), hostsKnown: make(chan struct{}), allSynced: make(chan struct{})}
	if config.HostAddresses == nil {
		close(p.hostsKnown)
	}
	objects := config.Objects
	objects.Shadowed = func(e source.Shadowed) {
		for _, l := range config.Listeners {
			l.Source(e)
		}
	}
	p.cache = source.NewCache(p, objects)
	for _, domain := range config.Domains {
		if !domain.Auxiliary || domain.Awaited {
			p.behind.Add(1)
		}
		if err := p.addAggregator(domain); err != nil {
			return nil, err
		}
	}
	p.addSupervisor()
	return p, p.addDirectory()
}

// fragments ──► aggregator ──► writer
//
//	│
//	└─ acks ──► directory
func (p *Proxy) addAggregator(domain Domain) error {
	noteSync := p.firstSync(domain)
	a, err := aggregator.New(aggregator.Config{
		Domain: domain.Name, Writer: domain.Writer, Layout: domain.Layout,
		Naming: domain.Renderer.Naming(), Pace: domain.Pace, GateWait: p.config.GateWait, MayWrite: p.config.MayWrite, Unlanded: p.config.Unlanded,
		Acks:  func(ack dataplane.Ack) { p.directory.PostAck(ack) },
		Owner: func(f service.Frontend) (service.Key, bool) { return p.cache.Owner(domain.Family, f) },
		Listen: func(e aggregator.Event) {
			noteSync(e)
			p.repaired(domain, e)
			for _, l := range p.config.Listeners {
				l.Aggregator(e)
			}
		},
	})
	p.aggregators = append(p.aggregators, a)
	return err
}

// firstSync returns a listener that notes the first sync of a domain.
func (p *Proxy) firstSync(domain Domain) func(aggregator.Event) {
	counts := !domain.Auxiliary || domain.Awaited
	return func(e aggregator.Event) {
		if _, synced := e.(aggregator.Synced); synced && counts && p.behind.Add(-1) == 0 {
			close(p.allSynced)
		}
	}
}

// FirstSync is closed once the first sync of every domain is complete: every Service is
// applied or quarantined, or its actor has failed for a minute. From then on nothing
// depends on the rules that other proxies left.
func (p *Proxy) FirstSync() <-chan struct{} { return p.allSynced }

// addSupervisor adds the supervisor of the actors. The first write does not wait for
// an actor that is parked or stuck.
func (p *Proxy) addSupervisor() {
	p.supervisor = supervisor.New(p.config.MessageDeadline, func(e supervisor.Event[service.Key]) {
		switch e.What.(type) {
		case supervisor.Parked, supervisor.Stuck:
			for _, a := range p.aggregators {
				a.Skip(e.Child)
			}
		}
		for _, l := range p.config.Listeners {
			l.Supervisor(e)
		}
	})
}

// cache ──► directory ──► actors ──► fragments
func (p *Proxy) addDirectory() (err error) {
	config := actors.Config{
		Starter: starter{p.supervisor}, State: truth{p.cache, p.facts},
		Intercept: p.config.Intercept,
		Listen: func(e actors.Event) {
			for _, l := range p.config.Listeners {
				l.Actors(e)
			}
		},
	}
	for i, domain := range p.config.Domains {
		config.Outputs = append(config.Outputs, actors.Output{
			Name: domain.Name, Renderer: domain.Renderer, Submit: p.aggregators[i].Submit,
			Submitted:  p.observers(domain, func(o ApplyObserver) viewed { return o.BeforeWrite }),
			Programmed: p.observers(domain, func(o ApplyObserver) viewed { return o.Programmed }),
			Family:     domain.Family,
		})
	}
	p.directory, err = actors.NewDirectory(config)
	return err
}

// observers returns a function that passes views of a domain to one of the functions of each observer; nil if no
// observer has that function.
func (p *Proxy) observers(domain Domain, function func(ApplyObserver) viewed) func(context.Context, service.View) {
	var told []viewed
	for _, o := range p.config.ApplyObservers {
		if tell := function(o); tell != nil && !domain.Auxiliary {
			told = append(told, tell)
		}
	}
	if len(told) == 0 {
		return nil
	}
	return func(ctx context.Context, view service.View) {
		for _, tell := range told {
			tell(ctx, domain.Family, view)
		}
	}
}

// repaired tells the observers that missing rules are in the kernel again: after a repair, after the first sync, or
// after a part of either while a bisection looks for the culprit of a rejection.
func (p *Proxy) repaired(domain Domain, e aggregator.Event) {
	switch e.(type) {
	case aggregator.Repaired, aggregator.PartlyRepaired, aggregator.Synced:
	default:
		return
	}
	for _, o := range p.config.ApplyObservers {
		if o.AfterRepair != nil && !domain.Auxiliary {
			o.AfterRepair(domain.Family)
		}
	}
}

// starter adapts the supervisor to the directory.
type starter struct {
	supervisor *supervisor.Supervisor[service.Key]
}

// Want implements actors.Starter.
func (k starter) Want(key service.Key, body actors.Body) {
	k.supervisor.Want(key, func(ctx context.Context, lease *supervisor.Lease) (bool, error) {
		return body(ctx, lease)
	})
}

// Nudge implements actors.Starter.
func (k starter) Nudge(key service.Key) { k.supervisor.Nudge(key) }

// truth is where actors read the current state: Services from the source's cache,
// and the facts. The cache has nothing under the node's own key.
type truth struct {
	*source.Cache
	facts *facts
}

// Facts returns this node's facts.
func (t truth) Facts() *service.NodeFacts { return t.facts.current.Load() }

// PostSpec implements source.Sink.
func (p *Proxy) PostSpec(key service.Key, spec *service.Spec) {
	if p.open.Load() {
		p.directory.PostSpec(key, spec, actors.Cause{Received: time.Now()})
	}
}

// PostSlice implements source.Sink.
func (p *Proxy) PostSlice(key service.Key, name string, slice *service.Slice) {
	if !p.open.Load() {
		return
	}
	cause := actors.Cause{Received: time.Now()}
	if slice != nil {
		cause.Trigger = slice.Trigger
	}
	p.directory.PostSlice(key, name, slice, cause)
}

// SeedNode gives the proxy the Node object of another proxy, before Run. If the source has no Node, it counts as
// deleted.
func (p *Proxy) SeedNode(node *service.NodeObject) { p.cache.SetNode(node) }

// PostNode implements source.Sink.
func (p *Proxy) PostNode(node *service.NodeObject) {
	p.changeFacts(func(f *facts) { f.setNode(node) })
	if node != nil {
		p.nodeOnce.Do(func() { close(p.nodeKnown) })
	}
}

// PostServiceCIDRs implements source.Sink.
func (p *Proxy) PostServiceCIDRs(cidrs []netip.Prefix) {
	p.changeFacts(func(f *facts) { f.cidrs = cidrs })
}

// Primed implements source.Sink.
func (p *Proxy) Primed() {
	now := time.Now()
	p.synced.Store(&now)
	close(p.primed)
}

func (p *Proxy) hostAddresses(all []netip.Addr) {
	p.changeFacts(func(f *facts) { f.hosts = all })
	if p.config.HostAddresses != nil {
		p.hostsOnce.Do(func() { close(p.hostsKnown) })
	}
}

func (p *Proxy) serverAddresses(all []netip.Addr) { p.changeFacts(func(f *facts) { f.servers = all }) }

// MoveSelfTest moves the self-test to other ports. Every Service is rendered again, so it is only for ports that
// another process holds.
func (p *Proxy) MoveSelfTest(to service.SelfTest) {
	p.changeFacts(func(f *facts) { f.settings.SelfTest = to })
}

// changeFacts may be called by several goroutines at the same time, so the announcement carries no facts: the actors
// read the facts that are current then.
func (p *Proxy) changeFacts(change func(*facts)) {
	if p.facts.update(change) {
		p.directory.PostFacts()
	}
}

// Status returns the newest status of every domain.
func (p *Proxy) Status() []aggregator.Status {
	var all []aggregator.Status
	for _, a := range p.aggregators {
		all = append(all, a.Status())
	}
	return all
}

// Unlanded returns the Services whose writes do not land, in any domain.
func (p *Proxy) Unlanded() (keys []service.Key) {
	for _, s := range p.Status() {
		for _, q := range s.Quarantined {
			if q.Cause == aggregator.DoesNotLand && q.Key != service.Node {
				keys = append(keys, q.Key)
			}
		}
	}
	return keys
}

// Node returns the last Node object seen, nil before the first.
func (p *Proxy) Node() *service.NodeObject { return p.facts.nodeObject() }

// NodeNow returns the Node object as the source has it now, nil before the first. Node also returns the last known
// addresses of a family that the object has lost.
func (p *Proxy) NodeNow() *service.NodeObject { return p.cache.Node() }

// SourceEvents counts the events of the source.
func (p *Proxy) SourceEvents() source.Events { return p.cache.Events() }

// Facts returns the facts that rules depend on now. They must not be changed.
func (p *Proxy) Facts() *service.NodeFacts { return p.facts.current.Load() }

// Services returns the number of Services that have an actor.
func (p *Proxy) Services() int { return p.directory.Len() - 1 }
