package aggregator

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
)

// job is one piece of work for the writer's goroutine: a batch to write, or,
// without one, reading the kernel back.
type job struct {
	batch *dataplane.Batch
}

// result is the account of a job.
type result struct {
	batch   *dataplane.Batch
	receipt dataplane.Receipt
	// objects, err and took describe a read.
	objects []dataplane.Object
	err     error
	took    time.Duration
}

// work carries out jobs one at a time until the channel is closed. It is the
// only goroutine that touches the writer.
func work(ctx context.Context, writer dataplane.Writer, timeout time.Duration, jobs <-chan job, results chan<- result) {
	for j := range jobs {
		results <- carryOut(ctx, writer, timeout, j)
	}
}

func carryOut(ctx context.Context, writer dataplane.Writer, timeout time.Duration, j job) result {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not done within %v", timeout))
	defer cancel()
	began := time.Now()
	r := result{batch: j.batch}
	if j.batch == nil {
		r.objects, r.err = writer.Read(ctx)
		r.took = time.Since(began)
		return r
	}
	r.receipt = writer.Write(ctx, j.batch)
	r.receipt.Took = time.Since(began)
	return r
}
