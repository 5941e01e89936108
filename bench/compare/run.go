// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// run is one turn of one program: a cluster, a node and its proxy, all of them new.
type run struct {
	options
	program string
	dir     string

	network *network
	api     *apiServer
	proxy   *proxy
	traffic *traffic
	memory  *rig.MemoryWatch

	items []*item
	// changing are the Services that churn changes, singles those with one endpoint.
	changing, singles []*item
	// steady are Services that nothing changes, which traffic asks all the time.
	steady []*item
	// fresh is the number of an endpoint that was never used.
	fresh int
	// made and followed count the changes under churn.
	made, followed int

	out *comparison
}

// step is what a run does after the cold start.
type step struct {
	name string
	do   func(*run, context.Context) error
}

var steps = []step{
	{"restart", (*run).restart},
	{"churn", (*run).churn},
	{"bulk", (*run).bulk},
	{"zone", (*run).zone},
	{"rolling", (*run).rolling},
}

func stepNames() (names []string) {
	for _, s := range steps {
		names = append(names, s.name)
	}
	return names
}

// chooseSteps reads a list of names and returns them in our order. The cold start always happens.
func chooseSteps(list string) ([]string, error) {
	given, names := strings.Split(list, ","), stepNames()
	for _, name := range given {
		if name != "cold" && !slices.Contains(names, name) {
			return nil, fmt.Errorf("-steps: unknown step %q; must be one or more of cold,%s", name, strings.Join(names, ","))
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(given, name) }), nil
}

// compare makes all runs and prints the result. A comparison that was cut short has what was measured until then.
func compare(ctx context.Context, o options) error {
	origin, err := o.origin(ctx)
	if err != nil {
		return err
	}
	out := &comparison{}
	failed := takeTurns(ctx, o, out)
	fmt.Println(origin + "\n")
	return errors.Join(failed, out.print(os.Stdout, fmt.Sprintf("%d Services", o.services)))
}

// takeTurns makes the runs of all rounds.
func takeTurns(ctx context.Context, o options, out *comparison) error {
	programs := o.programs()
	rig.Progress("%d Services, mode %s: cold start, %s; about %g minutes of churn in all", o.services, o.mode, strings.Join(o.steps, ", "), o.minutes)
	for round := range o.rounds {
		for i, program := range programs {
			rig.Progress("round %d of %d, %s (%d of %d), load average %s", round+1, o.rounds, program, i+1, len(programs), rig.LoadAverage())
			began := time.Now()
			r := &run{options: o, program: program, out: out}
			if err := rig.InFolder("compare", func(dir string) error {
				r.dir = dir
				return errors.Join(r.all(ctx), r.close())
			}); err != nil {
				return fmt.Errorf("round %d, %s: %w", round+1, program, err)
			}
			rig.Progress("that took %s", rig.Round(time.Since(began)))
		}
		slices.Reverse(programs)
	}
	return nil
}

// all makes a run.
func (r *run) all(ctx context.Context) error {
	if err := r.prepare(ctx); err != nil {
		return err
	}
	if err := r.cold(ctx); errors.Is(err, errNotServing) {
		rig.Progress("  %v: nothing more to measure", err)
		return r.proxy.kill()
	} else if err != nil {
		return err
	}
	for i, name := range r.steps {
		s := steps[slices.IndexFunc(steps, func(s step) bool { return s.name == name })]
		rig.Progress("  step %d of %d: %s", i+1, len(r.steps), name)
		if err := s.do(r, ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if err := r.proxy.Alive(); err != nil {
			return err
		}
	}
	return r.end(ctx)
}

// prepare makes the network, the API server and the objects.
func (r *run) prepare(ctx context.Context) (err error) {
	if r.network, err = newNetwork(r.soak > 0); err != nil {
		return err
	}
	if r.api, err = startAPIServer(r.apiServer, r.network.api, r.dir); err != nil {
		return err
	}
	if r.proxy, err = newProxy(r.options, r.program, r.network, r.api, r.dir); err != nil {
		return err
	}
	began := time.Now()
	r.items, r.fresh = plan(r.services), (r.services+bulkMax)*addressesEach
	if r.soak > 0 {
		makeDual(r.items)
	}
	if err := errors.Join(r.api.createNode(ctx, r.soak > 0), r.api.createNamespaces(ctx, r.items)); err != nil {
		return err
	}
	if err := forEach(ctx, r.items, r.api.create); err != nil {
		return err
	}
	rig.Progress("  %d Services written to the API server in %s", r.services, rig.Round(time.Since(began)))
	return nil
}

// end stops the program and removes its rules.
func (r *run) end(ctx context.Context) error {
	if r.traffic != nil {
		r.traffic.load.Stop()
		r.traffic = nil
	}
	if err := r.proxy.stop(); err != nil {
		return err
	}
	const step, what = "clean-up", "rules removed by --cleanup"
	limit, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	began := time.Now()
	switch err := r.proxy.cleanUp(limit); {
	case limit.Err() != nil && ctx.Err() == nil:
		r.beyond(step, what)
	case err != nil:
		return fmt.Errorf("%s --cleanup: %w", r.program, err)
	default:
		r.figure(step, what, "s", time.Since(began).Seconds())
	}
	return nil
}

// close ends everything that still runs.
func (r *run) close() error {
	var errs []error
	if r.traffic != nil {
		r.traffic.load.Stop()
	}
	if r.memory != nil {
		r.memory.Close()
	}
	if r.proxy != nil && r.proxy.Process() != nil {
		errs = append(errs, r.proxy.kill())
	}
	if r.api != nil {
		errs = append(errs, r.api.Kill())
	}
	if r.network != nil {
		errs = append(errs, r.network.close())
	}
	return errors.Join(errs...)
}
