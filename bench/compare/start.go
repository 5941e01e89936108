package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/bench/result"
)

const (
	// sampleMax is how many Services are asked all the time until they answer. All are asked after
	// that.
	sampleMax = 200
	// steadyMax is how many Services nothing changes, for the traffic beside everything.
	steadyMax = 20
)

// cold starts the program on a node without rules.
func (r *run) cold(ctx context.Context) error {
	const step = "cold start"
	r.deal()
	began, err := r.proxy.start()
	if err != nil {
		return err
	}
	r.memory = watchMemory(r.proxy.process.PID())
	sample := spread(r.items, sampleMax)
	limit, cancel := context.WithDeadline(ctx, began.Add(r.Limit))
	defer cancel()
	took := r.network.untilAll(limit, asked(sample), began)
	if err := r.proxy.alive(); err != nil {
		return err
	}
	r.waited(step, "all Services answer", took, len(sample))
	// Those that were not in the sample may be late.
	seen := time.Since(began)
	if all := r.network.untilAll(limit, asked(r.items), began); len(all) < len(r.items) {
		return fmt.Errorf("%d of %d Services do not answer %s after the start", len(r.items)-len(all), len(r.items), short(time.Since(began)))
	}
	r.figure(step, "all Services asked once more, answered after", "s", (time.Since(began) - seen).Seconds())
	if err := r.settle(ctx); err != nil {
		return err
	}
	used, err := usedBy(r.proxy.process.PID())
	if err != nil {
		return err
	}
	r.processor(step, used, 1)
	r.residents(step)
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
	r.steady = spread(r.changing, min(steadyMax, len(r.changing)/2))
	r.changing = slices.DeleteFunc(slices.Clone(r.changing), func(it *item) bool { return slices.Contains(r.steady, it) })
}

// spread returns at most so many items, at equal distances, the first and the last among them.
func spread(items []*item, most int) []*item {
	if len(items) <= most {
		return items
	}
	if most == 1 {
		return items[:1]
	}
	chosen := make([]*item, most)
	for i := range chosen {
		chosen[i] = items[i*(len(items)-1)/(most-1)]
	}
	return chosen
}

// asked returns a question for each item: whether it is served as it is now.
func asked(items []*item) (all []question) {
	for _, it := range items {
		if it.class != empty || it.protocol() == "TCP" {
			all = append(all, it.answered(it.endpoints...))
		}
	}
	return all
}

// waited notes how long it took until the last of so many.
func (r *run) waited(step, what string, took []time.Duration, of int) {
	if len(took) < of {
		r.beyond(step, what)
		return
	}
	last := time.Duration(0)
	for _, t := range took {
		last = max(last, t)
	}
	r.figure(step, what, "s", last.Seconds())
}

// processor notes what was used, per so many minutes if not 0.
func (r *run) processor(step string, used processorTime, minutes float64) {
	r.figure(step, "processor time, user", "s", used.user/minutes)
	r.figure(step, "processor time, system", "s", used.system/minutes)
}

// residents notes the memory now, and the most since the last call.
func (r *run) residents(step string) {
	r.figure(step, "resident", "MiB", float64(withChildrenKiB(r.proxy.process.PID()))/1024)
	r.figure(step, "resident, peak with children", "MiB", r.memory.take())
}

// lost notes what became of the traffic during a step.
func (r *run) lost(step string) {
	c := r.traffic.of(step)
	r.figure(step, "connections attempted", "", float64(c.attempted))
	r.figure(step, "connections lost", "", float64(c.lost))
}

// restart stops the program, changes a part of the cluster, and starts it over its own rules. It is
// done when what changed meanwhile is in force.
func (r *run) restart(ctx context.Context) error {
	const step = "restart"
	r.traffic.during(step)
	if err := r.proxy.stop(); err != nil {
		return err
	}
	r.memory.close()
	changed := spread(r.singles, sampleMax)
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
	r.memory = watchMemory(r.proxy.process.PID())
	limit, cancel := context.WithDeadline(ctx, began.Add(r.Limit))
	defer cancel()
	r.waited(step, "changes of the time without a process in force", r.network.untilAll(limit, asked(changed), began), len(changed))
	if err := r.settle(ctx); err != nil {
		return err
	}
	used, err := usedBy(r.proxy.process.PID())
	if err != nil {
		return err
	}
	r.processor(step, used, 1)
	r.residents(step)
	r.lost(step)
	return nil
}

// replace exchanges one endpoint of a Service, another one each time.
func (r *run) replace(it *item) {
	it.endpoints[r.fresh%len(it.endpoints)] = r.fresh
	r.fresh++
}

// distribution notes how long something took each time.
func (r *run) distribution(step string, took []time.Duration, beyond int) {
	d := result.Distribute(took, beyond)
	d.Program, d.Round, d.Step = r.program, r.round, step
	r.out.Distributions = append(r.out.Distributions, d)
	for _, percent := range []int{50, 90, 99, 100} {
		what := fmt.Sprintf("write to answer, p%d", percent)
		if percent == 100 {
			what = "write to answer, longest"
		}
		if percent < len(d.Percentiles) {
			r.figure(step, what, "s", d.Percentiles[percent]/1000)
		} else {
			r.beyond(step, what)
		}
	}
}
