// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/bench/rig"
)

const (
	// bulkMax is how many Services are created together, but not more than the cluster has.
	bulkMax = 5000
	// doomedPercent of them are in one namespace, which is deleted.
	doomedPercent = 40
	bulkEndpoints = 2
	// bulkSample are followed one by one.
	bulkSample = 100
)

// bulkItems makes the Services of two namespaces: the one that will be deleted, and another.
func (r *run) bulkItems() (doomed, others []*item) {
	count := min(bulkMax, r.services)
	for i := range count {
		it := &item{namespace: "bulk", class: plain, number: r.services + i, name: fmt.Sprintf("bulk-%05d", i)}
		for e := range bulkEndpoints {
			it.endpoints = append(it.endpoints, it.number*addressesEach+e)
		}
		if i < count*doomedPercent/100 {
			it.namespace = "doomed"
			doomed = append(doomed, it)
		} else {
			others = append(others, it)
		}
	}
	return doomed, others
}

// bulk creates many Services together and then deletes those of one namespace.
func (r *run) bulk(ctx context.Context) error {
	doomed, others := r.bulkItems()
	all := append(doomed[:len(doomed):len(doomed)], others...)
	if err := r.api.createNamespaces(ctx, all); err != nil {
		return err
	}
	served := func(it *item) question {
		q := it.answered(it.endpoints...)
		q.silent = true // both programs drop what goes to a ClusterIP that no Service has
		return q
	}
	if err := r.inBulk(ctx, fmt.Sprintf("%d Services created at once", len(all)), all, r.api.create, served, toAnswer); err != nil {
		return err
	}
	if err := r.idle(ctx); err != nil {
		return err
	}
	step := fmt.Sprintf("namespace of %d Services deleted", len(doomed))
	if err := r.inBulk(ctx, step, doomed, r.api.remove, (*item).gone, "write to refusal"); err != nil {
		return err
	}
	r.traffic.during("between steps")
	return forEach(ctx, others, r.api.remove)
}

// inBulk writes all items as fast as the API server takes it, and follows a sample to the answer.
func (r *run) inBulk(ctx context.Context, step string, items []*item,
	write func(context.Context, *item) error, done func(*item) question, what string) error {
	w, err := r.begin(step)
	if err != nil {
		return err
	}
	sample := map[*item]bool{}
	for _, it := range rig.Spread(items, bulkSample) {
		sample[it] = true
	}
	f := &followed{}
	var mu sync.Mutex
	var last time.Time
	began := time.Now()
	err = forEach(ctx, items, func(writing context.Context, it *item) error {
		if sample[it] {
			f.follow(ctx, r, done(it), func(at time.Time) {
				mu.Lock()
				defer mu.Unlock()
				if at.After(last) {
					last = at
				}
			})
		}
		return write(writing, it)
	})
	if err != nil {
		return err
	}
	wrote := time.Since(began)
	f.underway.Wait()
	if f.beyond > 0 {
		r.beyond(step, "first write to the last applied")
	} else {
		r.figure(step, "first write to the last applied", "s", last.Sub(began).Seconds())
	}
	r.figure(step, "of that, the API server's writes", "s", wrote.Seconds())
	r.distribution(step, what, f.took, f.beyond)
	return r.finish(ctx, w)
}
