// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

const (
	// rollingMax is how many endpoints the large Service has, but not more than five per Service of
	// the cluster.
	rollingMax = 5000
	// rollingPerSecond is how many of its slices are replaced.
	rollingPerSecond = 10
)

// rolling replaces all endpoints of one large Service, slice by slice.
func (r *run) rolling(ctx context.Context) error {
	big := &item{namespace: r.items[0].namespace, name: "large", class: plain, number: r.services + bulkMax}
	for range min(rollingMax, 5*r.services) {
		big.endpoints = append(big.endpoints, r.fresh)
		r.fresh++
	}
	if err := r.api.create(ctx, big); err != nil {
		return err
	}
	began := time.Now()
	limit, cancel := context.WithDeadline(ctx, began.Add(r.limit))
	_, served := r.network.until(limit, big.answered(big.endpoints...), began)
	cancel()
	if !served {
		return fmt.Errorf("the large Service does not answer %s after it was created", rig.Round(r.limit))
	}
	if err := r.idle(ctx); err != nil {
		return err
	}
	w, err := r.begin(fmt.Sprintf("%d endpoints of one Service replaced", len(big.endpoints)))
	if err != nil {
		return err
	}
	if began, err = r.replaceAll(ctx, big); err != nil {
		return err
	}
	limit, cancel = context.WithDeadline(ctx, began.Add(r.limit))
	defer cancel()
	what := "last write until no former endpoint answers"
	if at, ok := r.network.untilOnly(limit, big.answered(big.endpoints...), began); ok {
		r.figure(w.step, what, "s", at.Sub(began).Seconds())
	} else {
		r.beyond(w.step, what)
	}
	if err := r.finish(ctx, w); err != nil {
		return err
	}
	return r.api.remove(ctx, big)
}

// replaceAll replaces one slice after the other, and returns when it began to write the last.
func (r *run) replaceAll(ctx context.Context, it *item) (last time.Time, err error) {
	began := time.Now()
	for at := range it.sliceCount() {
		for i := at * perSlice; i < min((at+1)*perSlice, len(it.endpoints)); i++ {
			it.endpoints[i] = r.fresh
			r.fresh++
		}
		time.Sleep(time.Until(began.Add(time.Duration(at) * time.Second / rollingPerSecond)))
		last = time.Now()
		if err := r.api.update(ctx, it.slice(at)); err != nil {
			return last, err
		}
	}
	return last, nil
}

// untilOnly asks until only right answers come, and returns when the first of them came.
func (n *network) untilOnly(ctx context.Context, q question, began time.Time) (time.Time, bool) {
	const enough = 200
	count, first := 0, time.Time{}
	right := q.right
	q.right = func(a netnstest.Answer, err error) bool {
		if !right(a, err) {
			count = 0
			return false
		}
		if count++; count == 1 {
			first = time.Now()
		}
		return true
	}
	for ctx.Err() == nil {
		if !n.ask(ctx, q, askMax) {
			pause(ctx, began)
		}
		if count == enough {
			return first, true
		}
	}
	return time.Time{}, false
}
