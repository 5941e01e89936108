// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

const (
	// changedWithin is how soon a change of a Service has to be in the kernel while the writes of another Service hang.
	changedWithin = 10 * time.Second
	// fresh is the number of Services that hangAlongside adds and changes, in addition to those of the scenario.
	fresh = 3
	// hangRounds is how many times hangAlongside changes Services.
	hangRounds = 12
)

// hangAlongside lets the writes of a new Service hang. All other Services change within changedWithin, and the kubelet
// does not kill the process. Whatever the scenario holds back is still there; what else disturbs the node ends before.
func (w *world) hangAlongside(e event) error {
	w.actorFaults.resume()
	for _, s := range w.stacks {
		s.faults.clear()
	}
	hung := services + fresh
	for n := services; n < hung; n++ {
		w.say(newsOf(event{setService, n, 0, e.variant}, &w.cluster.picture)) // without an algorithm
		w.say(newsOf(event{setSlice, n, 0, e.variant}, &w.cluster.picture))
	}
	if err := w.settle(); err != nil {
		return fmt.Errorf("before a Service hangs: %w", err)
	}
	w.kubelet.Load().killed.Store(false)
	d := newRandom(e.variant, 92)
	defect := e.m
	for round := range hangRounds {
		switch {
		case round%(hangRounds/2) == 0:
			if err := w.happen(event{hangService, hung, defect, e.variant}); err != nil {
				return err
			}
			defect++
		case round == hangRounds-2 && e.n > 0:
			if err := w.happen(event{kill, int(service.IPv4), 0, e.variant}); err != nil {
				return err
			}
			w.prime()
		}
		if err := w.changeOthers(d, hung); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		time.Sleep(time.Duration(d.IntN(60)) * time.Second)
	}
	return nil
}

// changeOthers changes some Services, and returns an error if a change is not in the kernel in time.
func (w *world) changeOthers(d random, hung int) error {
	var well, changed []int
	for n := range hung {
		held := w.cluster.heldBack(n, service.IPv4) || w.cluster.heldBack(n, service.IPv6)
		if w.cluster.specs[n] != nil && !held && !w.cluster.state(n).isLarge() {
			well = append(well, n)
		}
	}
	for range 1 + d.IntN(3) {
		n := well[d.IntN(len(well))]
		w.say(newsOf(event{setSlice, n, d.IntN(3), d.Uint64N(1 << 12)}, &w.cluster.picture))
		if !w.cluster.state(n).isLarge() { // it was not before the change
			changed = append(changed, n)
		}
	}
	time.Sleep(changedWithin)
	synctest.Wait()
	if w.kubelet.Load().killed.Load() {
		return fmt.Errorf("the kubelet kills the process: %+v", w.proxy.Status())
	}
	return w.onTime(changed)
}

// isLarge reports whether a Service has a full table of slots, which observations of its endpoints cause as well. Such a
// Service may be written in turns, which takes longer than changedWithin if there is a minimum interval between writes.
func (s state) isLarge() bool {
	return s.isObserved() || s.spec != nil && s.spec.FullTable(s.slices)
}

// isObserved reports whether the node has observed endpoints of a Service, so that their weights change often.
func (s state) isObserved() bool {
	return slices.ContainsFunc(s.slices, func(slice *service.Slice) bool { return slice.Observed != nil })
}

// onTime returns an error if changes of Services are not in the kernel.
func (w *world) onTime(changed []int) error {
	for _, s := range w.proxy.Status() {
		if !s.Open {
			return fmt.Errorf("%s: writes are not allowed yet: %+v", s.Domain, s)
		}
		pending, err := w.proxy.Pending(context.Background(), s.Domain)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Domain, err)
		}
		for _, n := range changed {
			if slices.Contains(pending, keyOf(n)) {
				return fmt.Errorf("%s: after %v, the change of %v is not in the kernel: %+v", s.Domain, changedWithin, keyOf(n), s)
			}
		}
	}
	return nil
}
