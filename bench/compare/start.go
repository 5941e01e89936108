// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"slices"

	"github.com/sluice-proxy/sluice/bench/rig"
)

const (
	// sampleMax is how many Services are asked all the time until they answer. All are asked after
	// that.
	sampleMax = 200
	// steadyMax is the number of unchanged Services, for the traffic during all steps.
	steadyMax = 20
)

// errNotServing says that a program did not serve the cluster in time, and no step makes sense.
var errNotServing = errors.New("not all Services answer in time")

// cold starts the program on a node without rules.
func (r *run) cold(ctx context.Context) error {
	const step = coldStart
	r.deal()
	began, err := r.proxy.start()
	if err != nil {
		return err
	}
	r.memory = rig.WatchMemory(r.proxy.Process().PID())
	sample := rig.Spread(r.items, sampleMax)
	limit, cancel := context.WithDeadline(ctx, began.Add(r.limit))
	defer cancel()
	took, _ := r.network.untilAll(limit, asked(sample), began)
	if err := errors.Join(ctx.Err(), r.proxy.Alive()); err != nil {
		return err
	}
	all, late := r.network.untilAll(limit, asked(r.items), began)
	if len(all) < len(r.items) {
		took = nil
	}
	r.waited(step, toAnswers, took, len(sample))
	if took == nil {
		return errNotServing
	}
	r.figure(step, "Services that answered later than that", "", float64(late))
	if err := r.finish(ctx, window{step: step}); err != nil {
		return err
	}
	r.traffic, err = startTraffic(ctx, r.network, r.steady)
	return err
}

// deal divides the Services into those that traffic asks all the time and those that change.
func (r *run) deal() {
	for _, it := range r.items {
		switch it.class {
		case single, singleUDP:
			r.singles = append(r.singles, it)
		case plain, udp, nodePorts, affinity:
			r.changing = append(r.changing, it)
		}
	}
	r.steady = rig.Spread(r.changing, min(steadyMax, len(r.changing)/2))
	r.changing = slices.DeleteFunc(slices.Clone(r.changing), func(it *item) bool { return slices.Contains(r.steady, it) })
}

// asked returns a question for each item: whether it is served as it is now.
func asked(items []*item) (all []question) {
	for _, it := range items {
		all = append(all, it.answered(it.endpoints...))
	}
	return all
}

// restart stops the program, changes a part of the cluster, and starts it over its own rules. It is
// done when what changed meanwhile is applied.
func (r *run) restart(ctx context.Context) error {
	const step = restart
	r.traffic.during(step)
	if err := r.proxy.stop(); err != nil {
		return err
	}
	r.memory.Close()
	changed := rig.Spread(r.singles, sampleMax)
	for _, it := range changed {
		r.replace(it)
	}
	if err := forEach(ctx, changed, func(ctx context.Context, it *item) error { return r.api.update(ctx, it.slice(0)) }); err != nil {
		return err
	}
	began, err := r.proxy.start()
	if err != nil {
		return err
	}
	r.memory = rig.WatchMemory(r.proxy.Process().PID())
	limit, cancel := context.WithDeadline(ctx, began.Add(r.limit))
	defer cancel()
	took, _ := r.network.untilAll(limit, asked(changed), began)
	r.waited(step, toChanges, took, len(changed))
	return r.finish(ctx, window{step: step})
}

// replace exchanges one endpoint of a Service, another one each time.
func (r *run) replace(it *item) {
	it.endpoints[r.fresh%len(it.endpoints)] = r.fresh
	r.fresh++
}
