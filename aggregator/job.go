// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
)

// purpose is why a job was begun. It decides who handles the result.
type purpose uint8

const (
	// ordinary writes what differs, without the suspects of a search.
	ordinary purpose = iota
	// try writes the newest fragments of the current group of the bisection.
	try
	// audit reads the kernel. ahead reads it in advance, for the first audit.
	audit
	ahead
)

// job is one piece of work for the writer's goroutine.
type job struct {
	purpose purpose
	// batch is what to write; nil for a read.
	batch *dataplane.Batch
	// limit bounds the duration of the job, and shared that of a write while others wait for its end.
	limit, shared time.Duration
}

// result is the result of a job, and an input of the machine.
type result struct {
	job
	// began is when the job began.
	began   time.Time
	receipt dataplane.Receipt
	// objects, err and took describe a read.
	objects []dataplane.Object
	err     error
	took    time.Duration
}

// work carries out jobs one at a time until the channel is closed. No other goroutine
// uses the writer.
func work(writer dataplane.Writer, jobs <-chan order, results chan<- result) {
	for s := range jobs {
		results <- carryOut(s.ctx, writer, s.job)
	}
}

// order is a job on its way to the writer's goroutine. Its context ends early if the job is cut.
type order struct {
	job
	ctx context.Context
}

// errAwaited is why a write was cut.
var errAwaited = errors.New("not done within the time limit while other Services wait")

func carryOut(ctx context.Context, writer dataplane.Writer, j job) result {
	ctx, cancel := context.WithTimeoutCause(ctx, j.limit, fmt.Errorf("not done within %v", j.limit))
	defer cancel()
	r := result{job: j, began: time.Now()}
	switch j.purpose {
	case ahead:
		writer.ReadAhead(ctx)
	case audit:
		r.objects, r.err = writer.Read(ctx)
		r.took = time.Since(r.began)
	default:
		r.receipt = writer.Write(ctx, j.batch)
		r.receipt.Took = time.Since(r.began)
	}
	return r
}
