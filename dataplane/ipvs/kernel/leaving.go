// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
)

// drop deletes leavers, and reports those that are past their deadline.
func (g *graceful) drop(ctx context.Context, kernel *kernelSockets, requests []wire.Request, now time.Time) (lost bool) {
	if len(requests) == 0 {
		return false
	}
	type reason struct {
		owner    service.Key
		deadline time.Duration
	}
	cut := map[reason][]netip.AddrPort{}
	for i, err := range kernel.changes.Do(ctx, requests) {
		f, addr := requests[i].Service.Frontend, requests[i].Real.Addr
		l := g.left[f]
		if err != nil && !wire.Missing(err) {
			l.failed, lost = true, lost || wire.Unknown(err)
			continue
		}
		if why := (reason{l.owner, g.deadlineOf(f)}); g.late(l, addr, now) && !l.since[addr].IsZero() {
			cut[why] = append(cut[why], addr)
		}
		delete(l.since, addr)
	}
	for why, endpoints := range cut {
		slices.SortFunc(endpoints, netip.AddrPort.Compare)
		g.cut(Cut{Service: why.owner, Endpoints: slices.Compact(endpoints), Deadline: why.deadline})
	}
	return lost
}

// Leaving implements Leaving of [dataplane.Writer]. Any goroutine may call it.
func (w *Writer) Leaving() map[service.Key]int {
	all := map[service.Key]int{}
	w.leaving.counts.Range(func(key, count any) bool {
		all[key.(service.Key)] = count.(int)
		return true
	})
	return all
}

// Foresee implements Foresee of [dataplane.Writer].
func (w *Writer) Foresee(ctx context.Context, c *dataplane.Change) (*dataplane.Object, error) {
	if c.ID.Container != render.ContainerServer || c.Before == nil || c.After == nil {
		return c.After, nil
	}
	if err := w.take(ctx); err != nil {
		return nil, err
	}
	defer w.give()
	if err := w.connect(); err != nil {
		return nil, err
	}
	before, err := render.ParseServer(c.Before)
	if err != nil {
		return nil, err
	}
	after, err := render.ParseServer(c.After)
	if err != nil {
		return nil, err
	}
	e := &edit{frontend: after.Frontend, before: &before, after: &after}
	e.come, e.goes = diff(e.before, e.after)
	w.leaving.soften(e)
	found, err := w.kernel.servers.Destinations(ctx, e.frontend)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.frontend, err)
	}
	after.Grace = before.Grace
	for _, d := range found {
		if d.ActiveConns+d.InactiveConns > 0 && slices.Contains(e.leaves, d.Addr) {
			after.Reals = append(after.Reals, wire.Real{Addr: d.Addr})
		}
	}
	slices.SortFunc(after.Reals, func(a, b wire.Real) int { return a.Addr.Compare(b.Addr) })
	object := after.Object()
	return &object, nil
}

// take takes the writer's turn, which all methods need except Leaving and Watch.
func (w *Writer) take(ctx context.Context) error {
	select {
	case w.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// give ends the turn, and sets the alarm to the next look at the leavers. Without leavers there is no alarm.
func (w *Writer) give() {
	w.leaving.settle()
	switch at := w.leaving.next(); {
	case at.IsZero() || w.closed:
		if w.alarm != nil {
			w.alarm.Stop()
			w.alarm = nil
		}
	case w.alarm == nil:
		w.alarm = time.AfterFunc(time.Until(at), w.look)
	default:
		w.alarm.Reset(time.Until(at))
	}
	<-w.turn
}

// lookTime limits the time of the requests in one turn.
const lookTime = 2 * time.Second

// look runs when the alarm fires. After a failure it runs again at the next alarm.
func (w *Writer) look() {
	w.turn <- struct{}{}
	defer w.give()
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	if w.closed {
		return
	}
	if err := w.connect(); err != nil {
		w.leaving.postpone(err, time.Now())
		return
	}
	if w.leaving.look(ctx, w.kernel, time.Now()) {
		_ = w.disconnect() // a late answer must not be taken for that of a later request
	}
}

// postpone delays the leavers that are due, because there is no connection to the kernel.
func (g *graceful) postpone(err error, now time.Time) {
	for _, l := range g.due(now, len(g.left)) {
		l.pause = min(2*l.pause, lookMax)
		l.next, l.failed = now.Add(l.pause), true
		if !g.doubted {
			g.doubted = true
			g.unread(l.owner, l.frontend, err)
		}
	}
}
