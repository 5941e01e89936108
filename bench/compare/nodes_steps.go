package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/bench/result"
	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// proxied are the resources that a proxy reads.
var proxied = []string{"services", "endpointslices", "nodes", "servicecidrs"}

func (f *fleet) count(ctx context.Context) (counted, error) {
	return count(ctx, f.network.Hosts[hub], f.api, proxied...)
}

// note notes and prints a figure of the fleet that is up.
func (f *fleet) note(step, what, unit string, value float64) {
	figure := result.FleetFigure{Nodes: len(f.up), Step: step, What: what, Unit: unit, Value: value}
	f.out.Figures = append(f.out.Figures, figure)
	rig.Progress("  %s: %s: %s", step, what, figure.Text())
}

// served notes what the API server has done in a step.
func (f *fleet) served(step string, before, after counted) {
	f.note(step, result.Sent, "MiB", after.wire.minus(before.wire).received/(1<<20))
	f.note(step, result.ServerTime, "s", after.server.Minus(before.server).Sum().Seconds())
	f.note(step, result.ServerPeak, "MiB", f.memory.Take())
	f.note(step, result.Lists, "", after.asked.lists-before.asked.lists)
	f.note(step, result.Streams, "", after.asked.streams-before.asked.streams)
	f.note(step, result.Rejected, "", after.asked.rejected-before.asked.rejected)
}

// settle waits until the API server has nothing more to do. Hundreds of connections cost some time at rest.
func (f *fleet) settle(ctx context.Context) error {
	return f.idleProcess(ctx, "the API server", f.api.process.PID(), 0.08)
}

func (f *fleet) startTogether(ctx context.Context) error {
	return f.start(ctx, result.FleetStart, 0)
}

// startApart starts all processes again, at equal distances.
func (f *fleet) startApart(ctx context.Context) error {
	if err := each(f.up, (*member).stop); err != nil {
		return err
	}
	if err := f.settle(ctx); err != nil {
		return err
	}
	return f.start(ctx, result.FleetApart, fleetPause)
}

// start starts all processes with a pause between two, and counts until all are ready.
func (f *fleet) start(ctx context.Context, step string, pause time.Duration) error {
	before, err := f.count(ctx)
	if err != nil {
		return err
	}
	f.memory.Take()
	limit, cancel := context.WithTimeout(ctx, time.Duration(len(f.up))*pause+f.Limit)
	defer cancel()
	began := time.Now()
	err = each(f.up, func(m *member) error {
		for i, one := range f.up {
			if one == m && !rig.Sleep(limit, time.Until(began.Add(time.Duration(i)*pause))) {
				return limit.Err()
			}
		}
		if err := m.start(f.sluice, f.kubeconfig); err != nil {
			return err
		}
		return m.awaitReady(limit)
	})
	if err != nil {
		return err
	}
	var took []time.Duration
	for _, m := range f.up {
		took = append(took, m.ready)
	}
	f.note(step, "start of the process to ready, p50", "s", rig.Percentile(took, 50).Seconds())
	f.note(step, result.LastReady, "s", rig.Percentile(took, 100).Seconds())
	if err := f.settle(ctx); err != nil {
		return err
	}
	after, err := f.count(ctx)
	if err != nil {
		return err
	}
	f.served(step, before, after)
	return errors.Join(f.processes(step), f.complete(ctx))
}

// complete returns an error unless all nodes have all EndpointSlices.
func (f *fleet) complete(ctx context.Context) error {
	all := 0
	for _, it := range f.items {
		all += it.sliceCount()
	}
	return each(f.up, func(m *member) error {
		seen, err := m.look(ctx)
		if err == nil && seen < float64(all) {
			err = fmt.Errorf("%s has %.0f of %d EndpointSlices", m.name, seen, all)
		}
		return err
	})
}

// processes notes the means of the processes on the nodes.
func (f *fleet) processes(step string) error {
	used, resident := time.Duration(0), 0.0
	for _, m := range f.up {
		cpu, err := rig.Used(m.process.PID())
		if err != nil {
			return err
		}
		used, resident = used+cpu.Sum(), resident+rig.MiB(m.process.PID(), rig.Resident)
	}
	f.note(step, "processor time of a node's process", "s", used.Seconds()/float64(len(f.up)))
	f.note(step, "resident size of a node's process", "MiB", resident/float64(len(f.up)))
	return nil
}

// look notes what has reached the nodes so far.
func (f *fleet) look(ctx context.Context) error {
	return each(f.up, func(m *member) (err error) {
		m.seen, err = m.look(ctx)
		return err
	})
}

// changes replaces endpoints, until all nodes have all changes.
func (f *fleet) changes(ctx context.Context) error {
	if err := f.look(ctx); err != nil {
		return err
	}
	before, err := f.count(ctx)
	if err != nil {
		return err
	}
	f.memory.Take()
	ticker := time.NewTicker(time.Second / fleetNodesRate)
	defer ticker.Stop()
	for i := range fleetNodesChanges {
		if err := f.changeOne(ctx, i); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	if err := f.reached(ctx, fleetNodesChanges); err != nil {
		return err
	}
	after, err := f.count(ctx)
	if err != nil {
		return err
	}
	const step = result.FleetChanges
	f.note(step, result.SentEach, "KiB", after.wire.minus(before.wire).received/1024/fleetNodesChanges)
	f.note(step, result.ServerTimeEach, "s", after.server.Minus(before.server).Sum().Seconds()/fleetNodesChanges)
	f.note(step, result.Requests, "", after.asked.lists+after.asked.streams-before.asked.lists-before.asked.streams)
	f.note(step, result.ServerPeak, "MiB", f.memory.Take())
	return nil
}

// changeOne replaces an endpoint of the i-th of the Services that change.
func (f *fleet) changeOne(ctx context.Context, i int) error {
	it := f.changing[i%len(f.changing)]
	f.replace(it)
	return f.api.update(ctx, it.slice(0))
}

// reached waits until so many changes since look have reached all nodes.
func (f *fleet) reached(ctx context.Context, changes int) error {
	limit, cancel := context.WithTimeout(ctx, f.Limit)
	defer cancel()
	var reached atomic.Int64
	err := each(f.up, func(m *member) error {
		err := m.awaitSeen(limit, changes)
		if err == nil {
			reached.Add(1)
		}
		return err
	})
	f.withNews = int(reached.Load())
	return err
}

// rest counts what passes while nothing changes.
func (f *fleet) rest(ctx context.Context) error {
	if err := f.settle(ctx); err != nil {
		return err
	}
	before, err := f.count(ctx)
	if err != nil {
		return err
	}
	if !rig.Sleep(ctx, fleetNodesIdle) {
		return ctx.Err()
	}
	after, err := f.count(ctx)
	if err != nil {
		return err
	}
	f.note(result.FleetRest, result.SentPerMinute, "KiB", after.wire.minus(before.wire).received/1024/fleetNodesIdle.Minutes())
	f.note(result.FleetRest, result.ServerPerMinute, "s", after.server.Minus(before.server).Sum().Seconds()/fleetNodesIdle.Minutes())
	return nil
}

// restartServer ends the API server and starts it again. It counts until a change that was written then
// has reached all nodes.
func (f *fleet) restartServer(ctx context.Context) error {
	const step = result.FleetRestart
	if err := f.look(ctx); err != nil {
		return err
	}
	before, err := wire(f.network.Hosts[hub])
	if err != nil {
		return err
	}
	f.memory.Close()
	if err := f.api.restart(ctx, (*netns.Daemon).Stop); err != nil {
		return err
	}
	up := time.Now()
	f.memory = rig.WatchMemory(f.api.process.PID())
	if err := f.changeOne(ctx, 0); err != nil {
		return err
	}
	err = f.reached(ctx, 1)
	f.note(step, "nodes with a new change within "+rig.Round(f.Limit), "", float64(f.withNews))
	if err == nil {
		f.note(step, result.UntilAll, "s", time.Since(up).Seconds())
	} else if ctx.Err() != nil {
		return err
	}
	if err := f.settle(ctx); err != nil {
		return err
	}
	after, err := f.count(ctx)
	if err != nil {
		return err
	}
	// The metrics and the times of the new process begin with it.
	f.served(step, counted{wire: before}, after)
	f.note(step, "open watches", "", after.asked.watches)
	return nil
}
