// Package sim runs the whole proxy in one process, on virtual time, against a kernel in
// memory, while things happen to it that a seed has chosen: Services and endpoints come
// and go, actors panic and hang, transactions are refused, slow, interrupted or of unknown
// outcome, and other programs change the rules.
//
//	scenario ──► world ──► proxy ──► guard ──► nftmodel.Kernel
//	   (events)    │                               │
//	               └──► cluster ──► expected ──► equal? packets? bounds?
//
// Whenever all is settled, the kernel must hold what is expected, computed from the
// cluster's state alone, and packets must end where the reference sends them. After each
// transaction the guard checks that no Service is served worse. A scenario is a list of
// plain events: a failing one is shortened and printed, in a form that can be pasted into
// simulation_test.go.
//
// What is not simulated: established connections, processes and sockets. The order in
// which goroutines run is the scheduler's, so a seed repeats the events and not every
// interleaving.
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
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/internal/nftmodel"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

// world is one simulation while it runs: the cluster, the node's kernel, and the proxy
// between them. It lives inside a testing/synctest bubble and belongs to the goroutine
// that made it.
type world struct {
	settings    settings
	random      random
	cluster     *cluster
	kernel      *nftmodel.Kernel
	stacks      service.PerFamily[*stack]
	actorFaults *actorFaults
	monitor     *monitor
	rendered    atomic.Int64
	// before, when set, is called before a Service is rendered.
	before func(*service.View)
	log    func(string)
	// clients counts those that were made up to look at affinity.
	clients int
	// primed is set once this process knows the first full picture.
	primed bool
	// damaged is set from another program's change until the next check.
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
		settings: settingsOf(seed), random: newRandom(seed, 78), actorFaults: newActorFaults(),
		kernel: nftmodel.NewKernel(), log: func(string) {},
	}
	w.monitor = newMonitor(nil)
	if log != nil {
		w.log = func(line string) { log(since(start) + " " + line) }
		w.monitor.log = w.log
	}
	w.cluster = newCluster(w.settings.node)
	w.kernel.SetVague(w.settings.blame == blameMessage)
	w.kernel.SetLate(w.settings.late)
	w.kernel.SetRefused(w.cluster.defects.refuses)
	for _, family := range service.Families {
		s := newStack(family, w.kernel, w.settings)
		s.guard.object, s.guard.disturb = w.monitor.object, s.disturb
		w.stacks[family] = s
	}
	w.cluster.changed = func(n int, now state) {
		for _, s := range w.stacks {
			s.guard.note(n, now, w.cluster.hosts)
		}
	}
	return w, w.start()
}

// start runs a new process, which finds the kernel as it is.
func (w *world) start() error {
	feed := make(chan *source.Cache)
	w.hosts = make(chan []netip.Addr)
	config := proxy.Config{
		Node:      w.settings.node,
		Intercept: w.actorFaults.intercept,
		Listeners: []observe.Listener{w.monitor},
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
	w.monitor.restarted()
	for _, s := range w.stacks {
		s.guard.restarted()
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
	config := w.settings.writer
	config.Open = w.stacks[family].guard.openSocket
	return proxy.Domain{
		Name: family.String(),
		Renderer: renderer{
			Renderer: nftables.NewRenderer(family, w.settings.options),
			defects:  w.cluster.defects, rendered: &w.rendered,
			before: func(view *service.View) {
				if w.before != nil {
					w.before(view)
				}
			},
		},
		Writer: &checkedWriter{
			Writer: nftables.NewWriter(family, config), stack: w.stacks[family], report: w.monitor.object,
		},
		Pace: w.settings.pace,
	}
}

// hostsChanged tells kernel and proxy the host's addresses.
func (w *world) hostsChanged() {
	w.hosts <- w.cluster.hosts
	for _, s := range w.stacks {
		s.guard.setHosts(w.cluster.hosts)
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
		for i, status := range p.Status() {
			family := service.Families[i]
			w.stacks[family].guard.checkHealth(status, func(spec *service.Spec) bool {
				return w.cluster.defects.holdBack(spec, family)
			})
		}
	}
}

// actorDisturbed notes that an actor is kept from its work.
func (w *world) actorDisturbed(n int) {
	for _, s := range w.stacks {
		s.guard.actorDisturbed(n)
	}
}

// prime says once per process that the source knows everything.
func (w *world) prime() {
	if !w.primed {
		w.primed = true
		w.cache.Prime()
	}
}

// happen makes one event happen.
func (w *world) happen(e event) error {
	w.log(e.String())
	w.monitor.count("event " + string(e.do))
	if e.do == breakService {
		w.actorDisturbed(e.n)
	}
	if e.do == breakService || e.do == rejectService { // perhaps before its first write
		for _, s := range w.stacks {
			s.remains = true
		}
	}
	if tell := w.cluster.apply(e); tell != nil {
		tell(w.cache)
		return nil
	}
	switch e.do {
	case setHosts:
		w.cluster.hosts = hostsOf(e.variant)
		w.cluster.recordAll()
		w.hostsChanged()
	case repairServices:
		w.cluster.repairAll()
	case failRequests:
		w.stacks[e.n].faults.add(failureOf(e.variant, e.m))
	case slowRequests:
		w.stacks[e.n].faults.add(slownessOf(e.variant, e.m))
	case disturbReads:
		w.stacks[e.n].faults.add(requestFault{ask: true, disturb: true, times: 3 * e.m, skip: int(e.variant % 20)})
	case panicActor, hangActor:
		w.actorFaults.add(e)
		w.actorDisturbed(e.n)
	case resumeActors:
		w.actorFaults.resume()
	case pause:
		w.prime()
		time.Sleep(time.Duration(e.variant) * time.Millisecond)
	case settle:
		return w.settle()
	case restart:
		return w.restart()
	default:
		// What is damaged before the kernel has been read is lost.
		for !w.primed || slices.ContainsFunc(w.proxy.Status(), func(s aggregator.Status) bool { return !s.Open }) {
			w.prime()
			time.Sleep(interval)
		}
		w.damaged = true
		return w.stacks[e.n].tamper(e)
	}
	return nil
}

// close ends the process; the rules stay.
func (w *world) close() error {
	w.actorFaults.resume()
	w.stop()
	err := <-w.done
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// repairTime is longer than any pause between two audits, and ends between two: a process
// that is killed right after a refused attempt leaves what has landed in part.
const repairTime = 15*time.Minute + 13*time.Second

// restart ends the process and starts another, which knows nothing. It does not know what
// another program or a refused write has taken from a Service that is held back, so the old
// process gets the time to put that back first.
func (w *world) restart() error {
	held := w.heldBack()
	if w.damaged || held {
		w.prime()
		time.Sleep(repairTime)
		w.damaged = false
	}
	if held && w.shadowed() {
		return nil // the kernel does not show which claims a held Service had lost
	}
	for _, s := range w.stacks {
		s.remains = held
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

// play makes everything happen and ends with a check, an empty cluster, and a process that
// has stopped.
func play(s scenario, log func(string)) (tally, error) {
	w, err := newWorld(s.seed, log)
	if err != nil {
		return nil, err
	}
	err = w.play(s.events)
	return w.monitor.tally(), errors.Join(err, w.close())
}

func (w *world) play(events []event) error {
	for i, e := range events {
		if err := w.happen(e); err != nil {
			return fmt.Errorf("event %d, %v: %w", i, e, err)
		}
	}
	if err := w.settle(); err != nil {
		return fmt.Errorf("in the end: %w", err)
	}
	return w.end()
}

// shrink returns a shorter list of events that still fails, by leaving out ever smaller runs
// of them (delta debugging). It calls fails at most tries times.
func shrink(events []event, fails func([]event) bool, tries int) []event {
	for size := (len(events) + 1) / 2; size > 0; {
		shorter := false
		for from := 0; from < len(events); {
			if tries == 0 {
				return events
			}
			tries--
			to := min(from+size, len(events))
			rest := append(append([]event{}, events[:from]...), events[to:]...)
			if fails(rest) {
				events, shorter = rest, true
			} else {
				from = to
			}
		}
		if !shorter || size > len(events) {
			size /= 2
		}
	}
	return events
}
