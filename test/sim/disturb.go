// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// disturb makes an event happen that is about the process, what it hears, or the kernel.
func (w *world) disturb(e event) error {
	d := newRandom(e.variant, 7)
	switch e.do {
	case handOver:
		return w.handOver(e)
	case upgrade:
		return w.upgrade(e)
	case suspend:
		w.suspend(time.Duration(1+d.IntN(30)) * time.Minute)
	case delayEvents, watchGap:
		w.feed.stall(stream(e.n), time.Duration(1+d.IntN(1<<d.IntN(17)))*time.Millisecond, e.do == watchGap)
	case relist:
		w.feed.relist(stream(e.n))
	case repeatEvents:
		w.feed.again()
	case upheaval:
		w.upheaval(e)
	case rejectAll:
		w.leaveRemains()
		w.stacks[e.n].faults.add(rejectionFor(d))
	case rival:
		w.awaitOpen()
		w.damaged = true
		w.rivals.Go(func() { w.runRival(w.stacks[e.n], d, w.quit) })
	default:
		// What is damaged before the kernel has been read is lost.
		w.awaitOpen()
		w.damaged = true
		return w.stacks[e.n].tamper(e)
	}
	return nil
}

// awaitOpen waits until the process may write, and knows what the kernel has.
func (w *world) awaitOpen() {
	for !w.primed || slices.ContainsFunc(w.proxy.Status(), func(s aggregator.Status) bool { return !s.Open || !w.knows(s.Domain) }) {
		w.prime()
		time.Sleep(interval)
	}
}

// leaveRemains notes that some Service may be held back from now on.
func (w *world) leaveRemains() {
	for _, s := range w.stacks {
		s.remains = true
	}
}

// rejectionFor lets the kernel reject every transaction, or take none, for some minutes.
func rejectionFor(d random) requestFault {
	f := requestFault{times: 1 << 30, until: time.Now().Add(time.Duration(30+d.IntN(300)) * time.Second)}
	switch d.IntN(4) {
	case 0:
		f.rejected = &wire.Rejection{Errno: unix.ENOMEM}
	case 1:
		f.rejected = &wire.Rejection{Errno: unix.EOPNOTSUPP}
	case 2:
		f.err = &netlink.NotSentError{Err: unix.EPERM}
	default:
		f.err = &netlink.NotSentError{Err: unix.ENOBUFS}
	}
	return f
}

// suspend freezes the process where it touches the world: no request reaches the kernel,
// nothing is heard. Time goes on; so its timers fire, and what they wait for is late.
func (w *world) suspend(d time.Duration) {
	for s := range ofHosts {
		w.feed.stall(s, d, false)
	}
	w.freeze()
	time.Sleep(d)
	w.thaw()
}

// rivalActs is what a rival does, as often as it stands here.
var rivalActs = []verb{
	deleteTable, deleteChain, deleteChain, deleteElement, deleteElement, deleteElement, addForeignChain,
	addForeignSet, alterRules, alterRules, alterRules, alterRules, addStray, addStray,
}

// runRival lets another program delete, add and rewrite for some seconds.
func (w *world) runRival(s *stack, d random, quit <-chan struct{}) {
	end := time.Now().Add(time.Duration(2+d.IntN(28)) * time.Second)
	for time.Now().Before(end) {
		select {
		case <-quit:
			return
		case <-time.After(time.Duration(20+d.IntN(1000)) * time.Millisecond):
		}
		w.monitor.count("rival acts")
		e := event{do: rivalActs[d.IntN(len(rivalActs))], n: int(s.family), variant: d.Uint64N(1 << 16)}
		if err := s.tamper(e); err != nil {
			w.monitor.object(fmt.Errorf("%v: %w", e, err))
		}
	}
}

// stopRivals ends all rivals.
func (w *world) stopRivals() {
	close(w.quit)
	w.rivals.Wait()
	w.quit = make(chan struct{})
}

// upheaval changes the Node object, the host's addresses and the ranges of ClusterIPs at one
// instant, in any order, while slices change.
func (w *world) upheaval(e event) {
	d := newRandom(e.variant, 8)
	var threads [][]event
	for _, do := range []verb{setNode, setHosts, setCIDRs} {
		if d.percent(75) {
			threads = append(threads, []event{{do: do, variant: d.Uint64N(1 << 16)}})
		}
	}
	var changes []event
	for range 3 {
		changes = append(changes, event{setSlice, d.IntN(services), d.IntN(3), d.Uint64N(1 << 16)})
	}
	var all sync.WaitGroup
	for _, thread := range mixed(d, append(threads, changes)) {
		all.Go(func() {
			for _, one := range thread {
				w.say(newsOf(one, nil))
			}
		})
	}
	all.Wait()
}

// handOver replaces the process by one of other settings, as the daemon does after a change
// of its configuration.
func (w *world) handOver(e event) error {
	d := newRandom(e.variant, 9)
	w.feed.reconfigure(nodeSettingsOf(newRandom(e.variant, nodeActor)))
	w.settings.pace, w.settings.writer.TransactionBytes = paceOf(d), 0
	w.settings.divide(d)
	return w.succeed(e, func() {})
}

// upgrade replaces the process by one that finds the rules as another release writes them.
func (w *world) upgrade(e event) error {
	return w.succeed(e, func() {
		w.life.end()
		w.stop()
		for _, family := range service.Families {
			if err := w.stacks[family].toOtherRelease(); err != nil {
				w.monitor.object(fmt.Errorf("the simulation's translation to another release: %w", err))
			}
		}
	})
}
