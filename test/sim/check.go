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

// patience is how long everything may take to settle. The longest pauses are the
// five minutes after which a parked actor is tried again, the ten that a slow
// audit is put off, and the trials of those who were quarantined together, four
// per audit.
const (
	patience = 40 * time.Minute
	look     = 20 * time.Second
)

// settle waits for a quiet point and checks everything.
func (w *world) settle() error {
	w.prime()
	var err error
	for range patience / look {
		time.Sleep(look)
		synctest.Wait()
		if err = w.calm(); err != nil {
			continue
		}
		var there service.PerFamily[[]served]
		if there, err = w.match(); err == nil {
			w.log("quiet")
			w.damaged = false
			return w.examine(there)
		}
	}
	return errors.Join(w.witness.objections(), fmt.Errorf("not settled after %v: %w", patience, err))
}

// calm reports whether the proxy believes that everything is done.
func (w *world) calm() error {
	var errs []error
	if got, want := w.proxy.Services(), len(w.cluster.specs); got != want {
		errs = append(errs, fmt.Errorf("%d actors for %d Services", got, want))
	}
	for i, s := range w.proxy.Status() {
		if got, want := w.quarantined(s), w.refused(service.Families[i]); !slices.Equal(got, want) {
			errs = append(errs, fmt.Errorf("%s: quarantined are %v, want %v", s.Domain, got, want))
		}
		errs = append(errs, idle(s))
	}
	return errors.Join(errs...)
}

// quarantined gives the keys in quarantine. Cursed Services are left out: what
// was refused before they were cursed is still the newest they have said.
func (w *world) quarantined(s aggregator.Status) (keys []string) {
	for _, q := range s.Quarantined {
		keys = append(keys, q.Key.String())
	}
	for _, spec := range w.cluster.specs {
		if w.cluster.troubles.curses(spec.Ports[0].Port) {
			keys = slices.DeleteFunc(keys, func(key string) bool { return key == spec.Key.String() })
		}
	}
	slices.Sort(keys)
	return keys
}

// refused gives the keys of the Services that have to be in quarantine.
func (w *world) refused(family service.Family) (keys []string) {
	for n, spec := range w.cluster.specs {
		if w.cluster.troubles.poisons(spec.Ports[0].Port) && w.cluster.heldBack(n, family) {
			keys = append(keys, spec.Key.String())
		}
	}
	slices.Sort(keys)
	return keys
}

func idle(s aggregator.Status) error {
	if !s.Open || s.Ledger.Pending+s.Ledger.Dirty > 0 || s.NodeAtFault || s.Failures > 0 || !s.OldestPending.IsZero() {
		return fmt.Errorf("%s is not idle: %+v", s.Domain, s)
	}
	return nil
}

// match finds out what is in the kernels, and gives an error when it is not what
// has to be.
func (w *world) match() (service.PerFamily[[]served], error) {
	var there service.PerFamily[[]served]
	for _, family := range service.Families {
		err, closest := fmt.Errorf("%v: no Service was ever heard of", family), -1
		for _, choice := range w.choices(family) {
			wrong := w.nodes[family].compare(w.refer(family, choice))
			if wrong == nil {
				err, there[family] = nil, choice
				break
			}
			if closest < 0 || len(wrong.Error()) < closest {
				err, closest = wrong, len(wrong.Error())
			}
		}
		if err != nil {
			return there, err
		}
	}
	for _, family := range service.Families {
		for _, s := range there[family] {
			w.cluster.settled(family, s)
			w.nodes[family].guard.settled(s.n, s.state, w.cluster.state(s.n))
		}
	}
	for n, spec := range w.cluster.specs {
		// Once cured, a cursed one's actor waits for its supervisor.
		if w.cluster.troubles.curses(spec.Ports[0].Port) || w.puppets.armed(n) {
			w.strike(n)
		}
	}
	if w.puppets.armed(nodeActor) {
		w.strike(nodeActor)
	}
	return there, nil
}

// examine checks, at a quiet point, everything else.
func (w *world) examine(there service.PerFamily[[]served]) error {
	errs := []error{w.witness.objections(), w.bounded()}
	for _, family := range service.Families {
		errs = append(errs, w.sendPackets(family, there[family]))
	}
	return errors.Join(append(errs, w.changeNothing())...)
}

// bounded checks that nothing has grown past its bound.
func (w *world) bounded() error {
	var errs []error
	for _, s := range w.proxy.Status() {
		// One account per actor, the node's own included; a cursed Service may
		// have none.
		if most := len(w.cluster.specs) + 1; s.Ledger.Keys > most {
			errs = append(errs, fmt.Errorf("%s: %d accounts for %d actors", s.Domain, s.Ledger.Keys, most))
		}
	}
	return errors.Join(errs...)
}

// changeNothing says everything once more: nobody renders, nothing is written.
// While somebody is in quarantine there are trials at any time, so nothing can
// be said then.
func (w *world) changeNothing() error {
	for _, s := range w.proxy.Status() {
		if len(s.Quarantined) > 0 {
			return nil
		}
	}
	before, rendered, started := w.efforts(), w.rendered.Load(), w.starts()
	w.cluster.repeat()(w.cache)
	time.Sleep(5 * time.Second)
	synctest.Wait()
	if after := w.efforts(); after != before {
		return fmt.Errorf("nothing has changed, and %d commands wrote", after-before)
	}
	// An actor that failed before is started at its own time, and renders anew.
	if again := w.rendered.Load() - rendered; again > 0 && w.starts() == started {
		return fmt.Errorf("nothing has changed, and %d Services were rendered", again)
	}
	return nil
}

// starts counts how many times an actor was started.
func (w *world) starts() int { return w.witness.tally()["supervisor.Started"] }

// efforts counts the commands that wrote to the kernels.
func (w *world) efforts() (count int) {
	for _, n := range w.nodes {
		c := n.kernel.Counters()
		count += c.Restores + c.Hooks
	}
	return count
}

// end removes every Service: only the scaffold stays.
func (w *world) end() error {
	w.puppets.release()
	w.cluster.clear()(w.cache)
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
