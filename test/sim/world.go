package sim

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

// world is one simulation while it runs: the cluster, the node's kernels, and
// the proxy between them. It lives inside a testing/synctest bubble and belongs
// to the goroutine that made it.
type world struct {
	settings settings
	dice     dice
	cluster  *cluster
	nodes    service.PerFamily[*node]
	puppets  *puppets
	witness  *witness
	rendered atomic.Int64
	// before, when set, is called before a Service is rendered.
	before func(*service.View)
	log    func(string)
	// clients counts those that were made up to look at affinity.
	clients int
	// primed tells that this process knows the first full picture.
	primed bool
	// damaged tells that a stranger has been at work since the last quiet point.
	damaged bool

	proxy *proxy.Proxy
	cache *source.Cache
	hosts chan []netip.Addr
	stop  context.CancelFunc
	done  chan error
}

// newWorld makes a world and starts the proxy. Log may be nil.
func newWorld(seed uint64, log func(string)) (*world, error) {
	start := time.Now()
	w := &world{
		settings: settingsOf(seed), dice: newDice(seed, 78), puppets: newPuppets(),
		log: func(string) {},
	}
	w.witness = newWitness(nil)
	if log != nil {
		w.log = func(line string) { log(since(start) + " " + line) }
		w.witness.log = w.log
	}
	w.cluster = newCluster(w.settings.node)
	for _, family := range service.Families {
		w.nodes[family] = newNode(family, w.cluster.troubles, w.settings.blame)
		w.nodes[family].guard.object = w.witness.object
	}
	w.cluster.tell = func(n int, s state) {
		for _, node := range w.nodes {
			node.guard.note(n, s, w.cluster.hosts)
		}
	}
	return w, w.start()
}

// start runs a new process, which finds the kernels as they are.
func (w *world) start() error {
	feed := make(chan *source.Cache)
	w.hosts = make(chan []netip.Addr)
	config := proxy.Config{
		Node:      w.settings.node,
		Intercept: w.puppets.intercept,
		Listeners: []observe.Listener{w.witness},
		Source: func(ctx context.Context, cache *source.Cache) error {
			feed <- cache
			<-ctx.Done()
			return nil
		},
		HostAddresses: func(ctx context.Context, changed func([]netip.Addr)) error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case all := <-w.hosts:
					changed(all)
				}
			}
		},
	}
	for _, family := range service.Families {
		config.Domains = append(config.Domains, w.domain(family))
	}
	var err error
	if w.proxy, err = proxy.New(config); err != nil {
		return err
	}
	w.witness.renewed()
	for _, node := range w.nodes {
		node.guard.renewed()
	}
	ctx, stop := context.WithCancel(context.Background())
	w.stop, w.done, w.primed = stop, make(chan error, 1), false
	go func() { w.done <- w.proxy.Run(ctx) }()
	go w.checkHealth(ctx, w.proxy)
	w.cache = <-feed
	w.hostsChanged()
	return nil
}

func (w *world) domain(family service.Family) proxy.Domain {
	return proxy.Domain{
		Name: family.String(),
		Renderer: renderer{
			Renderer: iptables.NewRenderer(family, w.settings.options),
			troubles: w.cluster.troubles, rendered: &w.rendered,
			before: func(view *service.View) {
				if w.before != nil {
					w.before(view)
				}
			},
		},
		Layout: iptables.NewLayout(family),
		Writer: &soloWriter{
			Writer: iptables.NewWriter(family, w.nodes[family].guard, w.settings.writer),
			report: w.witness.object,
		},
		Pace: w.settings.pace,
	}
}

// repairTime is longer than any pause between two audits, and ends between two: who is
// killed right after a refused try leaves what that has landed in part.
const repairTime = 15*time.Minute + 13*time.Second

// shadowed reports whether a Service has lost a frontend to another one.
func (w *world) shadowed() bool {
	return slices.ContainsFunc(w.proxy.Status(), func(s aggregator.Status) bool { return s.Ledger.Shadowed > 0 })
}

// heldBack reports whether a Service is kept from the kernel of some family.
func (w *world) heldBack() bool {
	for n := range w.cluster.specs {
		for _, family := range service.Families {
			if w.cluster.heldBack(n, family) {
				return true
			}
		}
	}
	return false
}

// hostsChanged lets kernels and proxy know the host's addresses.
func (w *world) hostsChanged() {
	w.hosts <- w.cluster.hosts
	for _, family := range service.Families {
		w.nodes[family].guard.move(w.cluster.hosts)
	}
}

// checkHealth looks every second whether health says what is missing.
func (w *world) checkHealth(ctx context.Context, p *proxy.Proxy) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
		for i, s := range p.Status() {
			family := service.Families[i]
			w.nodes[family].guard.checkHealth(s, func(spec *service.Spec) bool {
				return w.cluster.troubles.holdsBack(spec, family)
			})
		}
	}
}

// strike says that an actor cannot do its work.
func (w *world) strike(n int) {
	for _, node := range w.nodes {
		node.guard.strike(n)
	}
}

// prime says once per process that the source knows everything.
func (w *world) prime() {
	if !w.primed {
		w.primed = true
		w.cache.Prime()
	}
}

// close ends the process; the rules stay.
func (w *world) close() error {
	w.puppets.release()
	w.stop()
	err := <-w.done
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// restart ends the process and starts another, which knows nothing. What a stranger
// or a refused write has taken from a Service that is held back nobody knows after it,
// so the process is given the time to put it back before.
func (w *world) restart() error {
	held := w.heldBack()
	if w.damaged || held {
		w.prime()
		time.Sleep(repairTime)
		w.damaged = false
	}
	if held && w.shadowed() {
		return nil // which claims a held Service had lost, the kernel does not show
	}
	for _, n := range w.nodes {
		n.remains = held
	}
	if err := w.close(); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	if err := w.start(); err != nil {
		return err
	}
	if w.cluster.node != nil {
		w.cache.SetNode(w.cluster.node)
	}
	for _, slice := range w.cluster.slices {
		w.cache.SetSlice(slice)
	}
	for _, spec := range w.cluster.specs {
		w.cache.SetSpec(spec)
	}
	return nil
}

// happen makes one event happen.
func (w *world) happen(e event) error {
	w.log(e.String())
	w.witness.count("event " + string(e.do))
	if e.do == curseService {
		w.strike(e.n)
	}
	if tell := w.cluster.change(e); tell != nil {
		tell(w.cache)
		return nil
	}
	switch e.do {
	case setHosts:
		w.cluster.hosts = shapeHosts(e.shape)
		w.cluster.recordAll()
		w.hostsChanged()
	case cure:
		w.cluster.cureAll()
	case failTool:
		w.nodes[e.n].outage.arm(shapeFailure(e.shape, e.m))
	case slowTool:
		w.nodes[e.n].outage.arm(shapeSlowness(e.shape, e.m))
	case panicActor, hangActor:
		w.puppets.arm(e)
		w.strike(e.n)
	case freeActors:
		w.puppets.release()
	case pause:
		w.prime()
		time.Sleep(time.Duration(e.shape) * time.Millisecond)
	case quiet:
		return w.settle()
	case restart:
		return w.restart()
	default:
		if !w.primed { // as above: before the kernel has been read
			w.prime()
			time.Sleep(look)
		}
		w.damaged = true
		return w.nodes[e.n].meddle(e)
	}
	return nil
}
