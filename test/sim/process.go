// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// process is one process of the proxy, from its start to its end.
type process struct {
	*life
	proxy *proxy.Proxy
	cache *source.Cache
	hosts chan []netip.Addr
	// primed is set once this process knows the first full picture.
	primed bool
	// ctx ends when the process has to stop; done has the error of its end.
	ctx  context.Context
	stop context.CancelFunc
	done chan error
	// closed is set once the process was told to stop.
	closed bool
	// object is told what is wrong.
	object func(error)
}

// setHosts tells the host's addresses. A process that stops hears nothing.
func (p *process) setHosts(all []netip.Addr) {
	select {
	case p.hosts <- all:
	case <-p.ctx.Done():
	}
}

// newProcess makes a process, which does nothing yet.
func (w *world) newProcess() (*process, chan *source.Cache, error) {
	p := &process{life: newLife(), hosts: make(chan []netip.Addr), done: make(chan error, 1), object: w.monitor.object}
	p.ctx, p.stop = context.WithCancel(context.Background())
	feed := make(chan *source.Cache, 1)
	config := proxy.Config{
		Node:       w.cluster.settings,
		KeepMemory: true,
		Intercept:  w.actorFaults.intercept,
		Listeners:  []observe.Listener{mortalListener{w.monitor, p.life}},
		Source: func(ctx context.Context, cache *source.Cache) error {
			feed <- cache
			<-ctx.Done()
			return nil
		},
		Unlanded: func() []service.Key {
			if last := w.unlanded.Load(); last != nil {
				return *last
			}
			return nil
		},
		HostAddresses: func(ctx context.Context, changed func([]netip.Addr)) error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case all := <-p.hosts:
					changed(all)
				}
			}
		},
	}
	for _, family := range service.Families {
		config.Domains = append(config.Domains, w.domain(family, p.life))
	}
	var err error
	p.proxy, err = proxy.New(config)
	return p, feed, err
}

// start runs a new process, which finds the kernel as it is. Past and spread are those of
// feed.start.
func (w *world) start(past int, spread time.Duration) error {
	p, feed, err := w.newProcess()
	if err != nil {
		return err
	}
	w.monitor.restarted()
	for _, s := range w.stacks {
		s.guard.restarted()
	}
	w.process = p
	go func() { p.done <- p.proxy.Run(p.ctx) }()
	go w.checkHealth(p)
	p.cache = <-feed
	w.feed.start(p, past, spread)
	return nil
}

func (w *world) domain(family service.Family, life *life) proxy.Domain {
	config := w.settings.writer
	config.Open = func() (nftkernel.Socket, error) {
		socket, err := w.stacks[family].guard.openSocket()
		if err == nil {
			life.count(1)
		}
		return &mortal{socket, life, family}, err
	}
	return proxy.Domain{
		Family: family,
		Name:   family.String(),
		Renderer: renderer{
			Renderer: nftrender.NewRenderer(family, w.settings.options),
			defects:  w.cluster.defects, rendered: &w.rendered,
			before: func(view *service.View) {
				if w.before != nil {
					w.before(view)
				}
			},
		},
		Writer: w.stacks[family].checked(nftkernel.NewWriter(family, config).Contract(), w.monitor.object),
		Pace:   w.settings.pace,
	}
}

// checkHealth looks every second whether health says what is missing, and whether what
// waits is bounded.
func (w *world) checkHealth(p *process) {
	k := newKubelet(p)
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.ended:
			return
		case <-time.After(time.Second):
		}
		if now := p.proxy.Unlanded(); len(now) > 0 || isClosed(p.proxy.FirstSync()) {
			w.unlanded.Store(&now)
		}
		k.probe()
		w.kubelet.Store(k)
		lags := w.feed.lags()
		for i, status := range p.proxy.Status() {
			family := service.Families[i]
			// No queue has more than one entry per Service and one for the node.
			if most := services + extraServices + 1; status.Waiting > most || status.Ledger.Keys > most {
				w.monitor.object(fmt.Errorf("%s: %d fragments wait, %d accounts, want at most %d",
					status.Domain, status.Waiting, status.Ledger.Keys, most))
			}
			if lags {
				continue
			}
			w.stacks[family].guard.checkHealth(status, func(spec *service.Spec) bool {
				return w.cluster.defects.holdBack(spec, family)
			})
		}
	}
}

// close ends the process; the rules stay, and nothing else does.
func (w *world) close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	w.stopRivals()
	w.feed.stop()
	w.actorFaults.resume()
	w.stop()
	err := <-w.done
	if w.life.sockets != 0 {
		return errors.Join(err, fmt.Errorf("%d sockets are open after the end", w.life.sockets))
	}
	if errors.Is(err, context.Canceled) || w.isDead() {
		return nil
	}
	return err
}

// repairTime is longer than any pause between two audits, and ends between two: a process
// that is killed right after a rejected attempt leaves what has landed in part.
const repairTime = 15*time.Minute + 13*time.Second

// restart ends the process and starts another, which knows nothing. It does not know what
// another program or a rejected write has taken from a Service that is held back, so the old
// process gets the time to put that back first. (kill gives it none, and what is left of
// such a Service is less certain then.)
func (w *world) restart() error {
	held := w.heldBack()
	if w.damaged || held {
		w.prime()
		time.Sleep(repairTime)
		w.damaged = false
	}
	if held && w.contested() {
		return nil // the kernel does not show which frontends a held Service had lost
	}
	for _, s := range w.stacks {
		s.remains = held
	}
	if err := w.close(); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	return w.start(0, 0)
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

// kill ends the process wherever it is, and starts another immediately, with the kernel as it is.
// The variant says at which request to the kernel, and how the new one is fed. What a
// Service has in the kernel that was held back, or was about to change, is known in parts
// only from then on.
func (w *world) kill(e event) error {
	d := newRandom(e.variant, 5)
	if d.percent(80) {
		w.primeSoon()
	}
	patience := time.Duration(d.IntN(20_000)) * time.Millisecond
	if d.percent(75) {
		w.burn(&fuse{
			family: service.Families[e.n], ask: d.percent(25), after: d.percent(50),
			skip: d.IntN([]int{1, 3, 20}[d.IntN(3)]),
		})
		select {
		case <-w.ended:
			w.monitor.count("kill at a request")
		case <-time.After(patience):
			w.monitor.count("kill between requests")
		}
	}
	return w.succeed(e, w.life.end)
}

// succeed ends a process and starts the next, without any wait.
func (w *world) succeed(e event, end func()) error {
	d := newRandom(e.variant, 6)
	held := w.heldBack()
	if held {
		w.monitor.count("end beside a held Service")
	}
	if slices.ContainsFunc(w.proxy.Status(), func(s aggregator.Status) bool { return !s.Open }) {
		w.monitor.count("end before the first write")
	}
	w.stopRivals()
	var damaged service.PerFamily[map[nftmodel.Name]bool]
	for _, s := range w.stacks {
		damaged[s.family] = s.damaged()
	}
	end()
	if err := w.close(); err != nil {
		return fmt.Errorf("the end of a process: %w", err)
	}
	for _, s := range w.stacks {
		s.remains = held || s.remains
		s.leave(damaged[s.family])
	}
	for _, n := range w.cluster.numbers() {
		w.vague[n] = true
	}
	spread := []time.Duration{0, 50 * time.Millisecond, 5 * time.Second}[d.IntN(3)]
	return w.start([]int{0, 0, 50}[d.IntN(3)], spread)
}

// mortalListener hears nothing from the dead.
type mortalListener struct {
	*monitor
	life *life
}

// Aggregator implements observe.Listener.
func (l mortalListener) Aggregator(e aggregator.Event) {
	if done, is := e.(aggregator.AuditDone); is && done.Err == nil {
		l.life.audited(done.Domain)
	}
	if !l.life.isDead() {
		l.monitor.Aggregator(e)
	}
}
