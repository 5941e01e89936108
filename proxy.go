package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
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

	// primed is closed when the source has delivered its first full picture,
	// nodeKnown when it has delivered the Node, and hostsKnown when the host's
	// addresses have been read once.
	primed, nodeKnown, hostsKnown chan struct{}
	nodeOnce, hostsOnce           sync.Once
	// behind counts the domains of which the first write has not landed, and
	// inForce is closed when there is none; auxiliary domains do not count.
	behind  atomic.Int32
	inForce chan struct{}
	// open is set once actors may live. Before that nothing is posted: an
	// actor that knew half a picture would submit half a Service.
	open atomic.Bool
}

var _ source.Sink = (*Proxy)(nil)

// New assembles a proxy; Run starts it. Nothing is touched before that.
func New(config Config) (*Proxy, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	p := &Proxy{config: config, facts: newFacts(config.Node),
		primed: make(chan struct{}), nodeKnown: make(chan struct{}), hostsKnown: make(chan struct{}), inForce: make(chan struct{})}
	if config.HostAddresses == nil {
		close(p.hostsKnown)
	}
	p.cache = source.NewCache(p, source.Options{Warn: config.Warn, IgnoreExternalIPs: config.IgnoreExternalIPs})
	for _, domain := range config.Domains {
		if !domain.Auxiliary {
			p.behind.Add(1)
		}
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
	arrived := p.arrival(domain)
	a, err := aggregator.New(aggregator.Config{
		Domain: domain.Name, Writer: domain.Writer, Layout: domain.Layout, Naming: domain.Renderer.Naming(),
		Pace: domain.Pace, GateWait: p.config.GateWait, MayWrite: p.config.MayWrite,
		Verdicts: func(v dataplane.Verdict) { p.directory.PostVerdict(v) },
		Listen: func(e aggregator.Event) {
			arrived(e)
			p.tellRepaired(domain, e)
			for _, l := range p.config.Listeners {
				l.Aggregator(e)
			}
		},
	})
	p.aggregators = append(p.aggregators, a)
	return err
}

// arrival takes note of the first write of a domain: it is in force when the
// scaffold is, since nothing of a batch is settled before all of it.
func (p *Proxy) arrival(domain Domain) func(aggregator.Event) {
	first := !domain.Auxiliary
	return func(e aggregator.Event) {
		if applied, ok := e.(aggregator.Applied); ok && first && applied.Key == service.Node {
			first = false
			if p.behind.Add(-1) == 0 {
				close(p.inForce)
			}
		}
	}
}

// InForce is closed once the first rules of every domain are in force: from then
// on, nothing depends on what other proxies have left.
func (p *Proxy) InForce() <-chan struct{} { return p.inForce }

// addSupervisor wires the actors' keeper. A failing actor is excused at the
// gates, so that one poisoned Service does not hold up the first write.
func (p *Proxy) addSupervisor() (err error) {
	p.supervisor, err = supervisor.New(p.config.Supervisor, func(e supervisor.Event[service.Key]) {
		switch e.What.(type) {
		case supervisor.Parked, supervisor.Stuck:
			for _, a := range p.aggregators {
				a.Excuse(e.Child)
			}
		}
		for _, l := range p.config.Listeners {
			l.Supervisor(e)
		}
	})
	return err
}

// cache ──► directory ──► actors ──► fragments
func (p *Proxy) addDirectory() (err error) {
	config := actors.Config{
		Keeper: keeper{p.supervisor}, Truth: truth{p.cache, p.facts},
		MaxServices: p.config.MaxServices, Intercept: p.config.Intercept,
		Listen: func(e actors.Event) {
			p.noRoom(e)
			for _, l := range p.config.Listeners {
				l.Actors(e)
			}
		},
	}
	for i, domain := range p.config.Domains {
		config.Outputs = append(config.Outputs, actors.Output{
			Name: domain.Name, Renderer: domain.Renderer, Submit: p.aggregators[i].Submit, Programmed: p.programmed(domain),
			Drain: domain.Drain, Family: domain.Family, DrainDeadline: domain.DrainDeadline,
		})
	}
	p.directory, err = actors.NewDirectory(config)
	return err
}

// noRoom excuses a Service at the gates for which there is no actor: nothing waits for
// it, and what a former process has left of it stays as long as it exists.
func (p *Proxy) noRoom(e actors.Event) {
	for _, a := range p.aggregators {
		switch e := e.(type) {
		case actors.Refused:
			a.Excuse(e.Key)
		case actors.RefusedGone:
			a.Submit(&dataplane.Fragment{Key: e.Key, Gone: true})
		}
	}
}

// programmed passes on to the followers what a domain has put into force; nil when
// nobody is to be told.
func (p *Proxy) programmed(domain Domain) func(service.View) {
	if domain.Auxiliary || len(p.config.Followers) == 0 {
		return nil
	}
	return func(view service.View) {
		for _, f := range p.config.Followers {
			f.Programmed(domain.Family, view)
		}
	}
}

// tellRepaired passes on to the followers that rules are in force again.
func (p *Proxy) tellRepaired(domain Domain, e aggregator.Event) {
	if _, repaired := e.(aggregator.Repaired); !repaired || domain.Auxiliary {
		return
	}
	for _, f := range p.config.Followers {
		if r, ok := f.(Mender); ok {
			r.Repaired(domain.Family)
		}
	}
}

// Run serves until the context ends, or something fails that the proxy cannot
// do without. The rules stay in the kernel; what the writers hold themselves is
// given up.
func (p *Proxy) Run(ctx context.Context) error {
	err := p.serve(ctx)
	for _, domain := range p.config.Domains {
		if c, ok := domain.Writer.(io.Closer); ok {
			err = errors.Join(err, c.Close())
		}
	}
	return err
}

func (p *Proxy) serve(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { p.supervisor.Run(ctx); return nil })
	for i, a := range p.aggregators {
		group.Go(func() error { return a.Run(ctx) })
		if w, ok := p.config.Domains[i].Writer.(dataplane.Watcher); ok {
			group.Go(func() error { p.watch(ctx, p.config.Domains[i].Name, w, a.AuditSoon); return nil })
		}
	}
	if follow := p.config.HostAddresses; follow != nil {
		group.Go(func() error { return stopped(ctx, follow(ctx, p.hostAddresses)) })
	}
	group.Go(func() error { p.openUp(ctx); return nil })
	group.Go(func() error { p.settleDown(ctx); return nil })
	group.Go(func() error {
		if err := stopped(ctx, p.config.Source(ctx, p.cache)); err != nil {
			return fmt.Errorf("source: %w", err)
		}
		return nil
	})
	return group.Wait()
}

// Bounds of the pause before a watch that has failed is tried again; it doubles.
const (
	watchAgainMin = time.Second
	watchAgainMax = 30 * time.Second
)

// watch keeps up the watch for what others do to a domain. Nothing depends on it but
// how soon that is noticed, so a failure, such as no descriptor left for its socket,
// ends nothing: until it works again, each try comes with an audit.
func (p *Proxy) watch(ctx context.Context, domain string, w dataplane.Watcher, changed func(by dataplane.Stranger)) {
	for pause := watchAgainMin; ; pause = min(2*pause, watchAgainMax) {
		began := time.Now()
		err := w.Watch(ctx, changed)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > watchAgainMax {
			pause = watchAgainMin // it has worked meanwhile
		}
		if p.config.WatchFailed != nil {
			p.config.WatchFailed(domain, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		changed(dataplane.Stranger{})
	}
}

// openUp waits for the first full picture, for the host's addresses and the Node
// where they are asked for, then brings every Service's actor to life. The first write waits for all of
// them, so what it compares with the kernel is the whole truth.
func (p *Proxy) openUp(ctx context.Context) {
	for _, known := range []<-chan struct{}{p.primed, p.hostsKnown, p.drainsKnown()} {
		select {
		case <-known:
		case <-ctx.Done():
			return
		}
	}
	if p.config.NodeWait > 0 {
		select {
		case <-p.nodeKnown:
		case <-time.After(p.config.NodeWait):
		case <-ctx.Done():
			return
		}
	}
	p.open.Store(true)
	// What was filed before this moment is in the keys; what is filed after it
	// is posted.
	keys := p.cache.Keys()
	for _, a := range p.aggregators {
		a.Prime(append([]service.Key{service.Node}, keys...))
	}
	p.directory.Start()
	for _, key := range keys {
		p.directory.Invite(key)
	}
}

// drainsKnown is closed once it can be asked what drains: not before the process that
// has the rules now has ended, since it goes on letting endpoints drain.
func (p *Proxy) drainsKnown() <-chan struct{} {
	for _, d := range p.config.Domains {
		if d.Drain != nil && p.config.MayWrite != nil {
			return p.config.MayWrite
		}
	}
	return p.primed
}

// settleDown gives back the memory that only the first write needed, which with many
// Services is more than a third of what the process has then.
func (p *Proxy) settleDown(ctx context.Context) {
	select {
	case <-p.inForce:
		debug.FreeOSMemory()
	case <-ctx.Done():
	}
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

// Node gives the Node object as it was seen last; nil while it has not been.
func (p *Proxy) Node() *service.NodeObject { return p.facts.nodeObject() }

// SourceEvents counts what the source has told.
func (p *Proxy) SourceEvents() source.Events { return p.cache.Events() }

// Facts gives what the rules depend on now. It must not be changed.
func (p *Proxy) Facts() *service.NodeFacts { return p.facts.current.Load() }

// Reconfigure puts other settings about the node into force, without a restart:
// whatever depends on them is rendered anew, and only what comes out differently is
// written. An error means that nothing has changed. The node's name cannot change.
func (p *Proxy) Reconfigure(settings NodeSettings) error {
	if err := settings.validate(); err != nil {
		return err
	}
	if settings.Name != p.config.Node.Name {
		return fmt.Errorf("node name: %q cannot become %q while the proxy runs", p.config.Node.Name, settings.Name)
	}
	p.changeFacts(func(f *facts) { f.settings = settings })
	return nil
}

// Repace changes when rules are written. It is given the name of each domain, and
// gives its numbers; an error means that the numbers of some domain make no sense.
func (p *Proxy) Repace(pace func(domain Domain) aggregator.Pace) error {
	var failed []error
	for i, a := range p.aggregators {
		failed = append(failed, a.Repace(pace(p.config.Domains[i])))
	}
	return errors.Join(failed...)
}

// Services is the number of Services that have an actor.
func (p *Proxy) Services() int { return p.directory.Len() - 1 }

// PostSpec tells a Service's actor what the Service is now; for source.Cache.
func (p *Proxy) PostSpec(key service.Key, spec *service.Spec) {
	if p.open.Load() {
		p.directory.PostSpec(key, spec, actors.Cause{Received: time.Now()})
	}
}

// PostSlice tells a Service's actor what one slice is now; for source.Cache.
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

// PostNode tells everybody what the Node object says now; for source.Cache.
func (p *Proxy) PostNode(node *service.NodeObject) {
	p.changeFacts(func(f *facts) { f.node = node })
	if node != nil {
		p.nodeOnce.Do(func() { close(p.nodeKnown) })
	}
}

// PostServiceCIDRs tells everybody the ranges of ClusterIPs; for source.Cache.
func (p *Proxy) PostServiceCIDRs(cidrs []netip.Prefix) {
	p.changeFacts(func(f *facts) { f.cidrs = cidrs })
}

// Primed lets the actors live; for source.Cache, which calls it once.
func (p *Proxy) Primed([]service.Key) { close(p.primed) }

func (p *Proxy) hostAddresses(all []netip.Addr) {
	p.changeFacts(func(f *facts) { f.hosts = all })
	if p.config.HostAddresses != nil {
		p.hostsOnce.Do(func() { close(p.hostsKnown) })
	}
}

// changeFacts is called by several goroutines: whoever changes something else. The
// facts are a level, and so the announcement carries none.
func (p *Proxy) changeFacts(change func(*facts)) {
	if p.facts.update(change) {
		p.directory.PostFacts()
	}
}
