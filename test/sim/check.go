// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/service"
)

// patience is how long everything may take to settle. The longest pauses are the five
// minutes after which a parked actor is tried again, the ten by which a slow audit is put
// off, and the trials of Services that were quarantined together, four per audit.
const (
	patience = 40 * time.Minute
	interval = 20 * time.Second
)

// settle waits until all is settled and checks everything.
func (w *world) settle() error {
	w.stopRivals()
	w.feed.flush()
	w.prime()
	w.feed.flush()
	var err error
	for range patience / interval {
		time.Sleep(interval)
		synctest.Wait()
		if err = w.idle(); err != nil {
			continue
		}
		var there service.PerFamily[[]served]
		damaged := w.vagueIsDamaged()
		if there, err = w.match(); err == nil {
			w.log("settled")
			w.damaged = false
			w.feed.checked()
			if err = w.examine(there); err == nil && !damaged {
				err = w.changeNothing()
			}
			return err
		}
	}
	return errors.Join(w.monitor.objections(), fmt.Errorf("not settled after %v: %w", patience, err))
}

// idle returns an error unless the proxy believes that everything is done.
func (w *world) idle() error {
	var errs []error
	if got, want := w.proxy.Services(), len(w.cluster.specs); got != want {
		errs = append(errs, fmt.Errorf("%d actors for %d Services", got, want))
	}
	for i, s := range w.proxy.Status() {
		if got, want := w.quarantined(s), w.rejected(service.Families[i]); !slices.Equal(got, want) {
			errs = append(errs, fmt.Errorf("%s: quarantined are %v, want %v", s.Domain, got, want))
		}
		if !s.Open || s.Ledger.Pending+s.Ledger.Dirty > 0 || s.NodeAtFault || s.Failures > 0 || !s.OldestPending.IsZero() {
			errs = append(errs, fmt.Errorf("%s is not idle: %+v", s.Domain, s))
		}
	}
	return errors.Join(errs...)
}

// quarantined returns the keys in quarantine. Broken Services are left out: what was
// rejected before they broke is still the newest that they have submitted.
func (w *world) quarantined(s aggregator.Status) (keys []string) {
	for _, q := range s.Quarantined {
		keys = append(keys, q.Key.String())
	}
	for _, spec := range w.cluster.specs {
		if w.cluster.defects.broken(spec.Ports[0].Port) {
			keys = slices.DeleteFunc(keys, func(key string) bool { return key == spec.Key.String() })
		}
	}
	slices.Sort(keys)
	return keys
}

// rejected returns the keys of the Services that have to be in quarantine.
func (w *world) rejected(family service.Family) (keys []string) {
	for n, spec := range w.cluster.specs {
		if w.cluster.defects.rejected(spec.Ports[0].Port) && w.cluster.heldBack(n, family) {
			keys = append(keys, spec.Key.String())
		}
	}
	slices.Sort(keys)
	return keys
}

func (w *world) matchFamily(family service.Family) (there []served, err error) {
	err, closest := fmt.Errorf("%v: no Service ever existed", family), -1
	for _, choice := range w.choices(family) {
		want := w.allowed(family, choice)
		wrong := w.stacks[family].compare(want)
		if wrong == nil {
			w.checkJoin(family, choice, want.present[0]())
			return choice, nil
		}
		if closest < 0 || len(wrong.Error()) < closest {
			err, closest = wrong, len(wrong.Error())
		}
	}
	return nil, err
}

// match finds out which states the kernels hold, and returns an error when they are none
// that they have to hold.
func (w *world) match() (service.PerFamily[[]served], error) {
	var there service.PerFamily[[]served]
	for _, family := range service.Families {
		var err error
		if there[family], err = w.matchFamily(family); err != nil {
			w.later[family] = !w.later[family]
			var otherwise error
			if there[family], otherwise = w.matchFamily(family); otherwise != nil {
				return there, err
			}
		}
	}
	for _, family := range service.Families {
		for _, s := range there[family] {
			w.cluster.settled(family, s)
			w.stacks[family].guard.settled(s.n, s.state, w.cluster.state(s.n))
		}
	}
	for _, n := range w.cluster.numbers() {
		if !w.cluster.heldBack(n, service.IPv4) && !w.cluster.heldBack(n, service.IPv6) {
			delete(w.vague, n)
		}
	}
	for _, s := range w.stacks {
		if len(w.vague) == 0 {
			clear(s.left)
		}
		s.leave(s.stillLeft())
	}
	for n, spec := range w.cluster.specs {
		// After a repair, a broken one's actor waits for its supervisor.
		if w.cluster.defects.broken(spec.Ports[0].Port) {
			w.actorDisturbed(n)
		}
	}
	for _, n := range append(w.cluster.numbers(), nodeActor) { // also of Services that are yet to come
		if w.actorFaults.pending(n) {
			w.actorDisturbed(n)
		}
	}
	return there, nil
}

// examine checks everything else once all is settled.
func (w *world) examine(there service.PerFamily[[]served]) error {
	errs := []error{w.monitor.objections(), w.bounded()}
	for _, family := range service.Families {
		errs = append(errs, w.sendPackets(family, there[family]))
	}
	return errors.Join(errs...)
}

// bounded checks that nothing has grown past its bound.
func (w *world) bounded() error {
	var errs []error
	for _, s := range w.proxy.Status() {
		// One account per actor, the node's own included; a broken Service may have none.
		if most := len(w.cluster.specs) + 1; s.Ledger.Keys > most {
			errs = append(errs, fmt.Errorf("%s: %d accounts for %d actors", s.Domain, s.Ledger.Keys, most))
		}
	}
	return errors.Join(errs...)
}

// changeNothing announces everything again: no Service is rendered, nothing is written. It
// checks nothing while a Service is in quarantine, since there are trials at any time.
func (w *world) changeNothing() error {
	for _, s := range w.proxy.Status() {
		if len(s.Quarantined) > 0 {
			return nil
		}
	}
	before, rendered, started := w.commits(), w.rendered.Load(), w.starts()
	w.feed.again()
	time.Sleep(5 * time.Second)
	synctest.Wait()
	if after := w.commits(); after != before {
		return fmt.Errorf("nothing has changed, and %d transactions were sent", after-before)
	}
	// An actor that failed before is started at its own time, and renders again.
	if again := w.rendered.Load() - rendered; again > 0 && w.starts() == started {
		return fmt.Errorf("nothing has changed, and %d Services were rendered", again)
	}
	return nil
}

// starts counts how many times an actor was started.
func (w *world) starts() int { return w.monitor.tally()["supervisor.Started"] }

// commits counts the transactions that the proxy has sent to the kernel.
func (w *world) commits() (count int) {
	for _, s := range w.stacks {
		s.guard.mu.Lock()
		count += s.guard.commits
		s.guard.mu.Unlock()
	}
	return count
}

// end removes every Service: only the scaffold stays.
func (w *world) end() error {
	w.actorFaults.resume()
	w.say([]news{listed(ofSpecs, newPicture(w.cluster.settings, nil), w.random), listed(ofSlices, newPicture(w.cluster.settings, nil), w.random)})
	if err := w.settle(); err != nil {
		return fmt.Errorf("after every Service has gone: %w", err)
	}
	for _, s := range w.proxy.Status() {
		if s.Ledger.Keys != 1 {
			return fmt.Errorf("%s: %d accounts are left, want the node's own", s.Domain, s.Ledger.Keys)
		}
	}
	return nil
}
