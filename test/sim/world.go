// SPDX-License-Identifier: Apache-2.0

// Package sim runs the whole proxy in one process, on virtual time, against a kernel in
// memory, while things happen to it that a seed has chosen: Services and endpoints come
// and go, actors panic and hang, transactions are rejected, slow, interrupted or of unknown
// outcome, other programs change the rules, and processes are killed and succeed each other.
//
//	scenario ──► world ──► proxy ──► guard ──► nftmodel.Kernel
//	   (events)    │                               │
//	               └──► cluster ──► expected ──► equal? packets? bounds?
//
// Whenever all is settled, the kernel must hold what is expected, computed from the
// cluster's state alone, and packets must end where the reference sends them. After each
// transaction the guard checks that no Service is served worse. A scenario is a list of
// plain events: a failing one is shortened and printed, in a form that can be pasted into
// regressions_test.go.
//
// What is not simulated: established connections, processes and sockets. The order in
// which goroutines run is the scheduler's, so a seed repeats the events and not every
// interleaving.
package sim

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/nftmodel"
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
	// later is set if of two Services that keep a frontend which neither owns any more, the one with the larger
	// key has it. Who does depends on who had it last.
	later service.PerFamily[bool]
	// before, when set, is called before a Service is rendered.
	before func(*service.View)
	log    func(string)
	// clients counts those that were made up to look at affinity.
	clients int
	// damaged is set from another program's change until the next check.
	damaged bool

	// vague are the Services of which a former process may have left anything between two
	// states: it ended without a check.
	vague  map[int]bool
	drafts *drafts
	// rivals are other programs that keep changing the rules; they end with quit.
	rivals sync.WaitGroup
	quit   chan struct{}

	feed *feed
	// unlanded are the Services that did not land, as the daemon records them.
	unlanded atomic.Pointer[[]service.Key]
	// kubelet probes the newest process.
	kubelet atomic.Pointer[kubelet]
	*process
}

// newWorld makes a world and starts the proxy. Log may be nil.
func newWorld(seed uint64, log func(string)) (*world, error) {
	start := time.Now()
	w := &world{
		settings: settingsOf(seed), random: newRandom(seed, 78), actorFaults: newActorFaults(),
		kernel: nftmodel.NewKernel(), log: func(string) {}, vague: map[int]bool{}, quit: make(chan struct{}),
	}
	w.monitor = newMonitor(nil)
	if log != nil {
		w.log = func(line string) { log(since(start) + " " + line) }
		w.monitor.log = w.log
	}
	w.cluster = newCluster(w.settings.node)
	w.kernel.SetVague(w.settings.blame == blameMessage)
	w.kernel.SetRejected(w.cluster.defects.rejects)
	for _, family := range service.Families {
		s := newStack(family, w.kernel, w.settings)
		s.guard.object, s.guard.disturb, s.guard.stalls = w.monitor.object, s.disturb, w.cluster.defects.stalls
		s.guard.hangs = w.cluster.defects.hangs
		w.stacks[family] = s
	}
	w.monitor.misquarantined = func(q aggregator.Quarantined) error {
		if aggregator.IsRemembered(q) {
			return nil // by the process before
		}
		for _, s := range w.stacks {
			if s.family.String() == q.Domain {
				return s.guard.misquarantined(q.Key)
			}
		}
		return nil
	}
	w.cluster.changed = func(n int, now state) {
		for _, s := range w.stacks {
			s.guard.note(n, now, w.cluster.hosts)
		}
	}
	w.feed = newFeed(w.cluster, newRandom(seed, 84))
	for _, s := range w.stacks {
		s.guard.setHosts(w.cluster.hosts)
	}
	return w, w.start(0, 0)
}

// actorDisturbed notes that an actor is kept from its work.
func (w *world) actorDisturbed(n int) {
	for _, s := range w.stacks {
		s.guard.actorDisturbed(n)
	}
}

// prime says once per process that the source knows everything, when it does.
func (w *world) prime() {
	for !w.feed.complete() {
		time.Sleep(10 * time.Millisecond)
	}
	w.primeSoon()
}

// primeSoon primes if everything has been listed.
func (w *world) primeSoon() {
	if !w.primed && w.feed.complete() {
		w.feed.primed()
	}
}

// happen makes one event happen.
func (w *world) happen(e event) error {
	w.log(e.String())
	w.monitor.count("event " + string(e.do))
	if e.do == breakService {
		w.actorDisturbed(e.n)
	}
	if e.do == breakService || e.do == rejectService || e.do == stallService || e.do == hangService || e.do == rejectMany { // perhaps before its first write
		w.leaveRemains()
	}
	if said := newsOf(e, &w.cluster.picture); said != nil {
		w.say(said)
		return nil
	}
	switch e.do {
	case hangAlongside:
		return w.hangAlongside(e)
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
	case kill:
		return w.kill(e)
	default:
		return w.disturb(e)
	}
	return nil
}

// say makes news happen, and the kernel know the host's addresses.
func (w *world) say(all []news) {
	for _, n := range all {
		w.feed.say(n)
		if n.of == ofHosts {
			for _, s := range w.stacks {
				s.guard.setHosts(w.cluster.hosts)
			}
		}
	}
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
