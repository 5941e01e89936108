// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"
)

// zone changes the label of the node that says where it is, and back. Every Service has hints, so
// each is looked at again; those with one endpoint per zone change the one in use.
func (r *run) zone(ctx context.Context) error {
	const step = "node changes its zone"
	w, err := r.begin(step)
	if err != nil {
		return err
	}
	var took []time.Duration
	beyond := 0
	for _, to := range []int{1, 0} {
		var questions []question
		for _, it := range r.items {
			if it.class == zoned {
				questions = append(questions, it.answered(it.endpoints[to]))
			}
		}
		began := time.Now()
		if err := r.api.setZone(ctx, zones[to]); err != nil {
			return err
		}
		limit, cancel := context.WithDeadline(ctx, began.Add(r.limit))
		switched, _ := r.network.untilAll(limit, questions, began)
		cancel()
		took, beyond = append(took, switched...), beyond+len(questions)-len(switched)
		if err := r.idle(ctx); err != nil {
			return err
		}
	}
	r.distribution(step, toAnswer, took, beyond)
	return r.finish(ctx, w)
}
