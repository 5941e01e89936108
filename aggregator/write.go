package aggregator

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
)

// jobTimeout bounds one write and one read. A try of a search has less time; see tryLimit.
const jobTimeout = 2 * time.Minute

// job is one piece of work for the writer's goroutine: a batch to write, or, without a
// batch, a read.
type job struct {
	batch *dataplane.Batch
	// ahead makes it a read ahead of the first one.
	ahead bool
	// limit bounds the job.
	limit time.Duration
}

// result is the result of a job.
type result struct {
	job
	receipt dataplane.Receipt
	// objects, err and took describe a read.
	objects []dataplane.Object
	err     error
	took    time.Duration
}

// work carries out jobs one at a time until the channel is closed. No other goroutine
// uses the writer.
func work(ctx context.Context, writer dataplane.Writer, jobs <-chan job, results chan<- result) {
	for j := range jobs {
		results <- carryOut(ctx, writer, j)
	}
}

func carryOut(ctx context.Context, writer dataplane.Writer, j job) result {
	ctx, cancel := context.WithTimeoutCause(ctx, j.limit, fmt.Errorf("not done within %v", j.limit))
	defer cancel()
	began := time.Now()
	r := result{job: j}
	if j.ahead {
		writer.(dataplane.ReaderAhead).ReadAhead(ctx)
		return r
	}
	if j.batch == nil {
		r.objects, r.err = writer.Read(ctx)
		r.took = time.Since(began)
		return r
	}
	r.receipt = writer.Write(ctx, j.batch)
	r.receipt.Took = time.Since(began)
	return r
}

// cut folds what waits and writes, unless a control write comes first.
func (a *Aggregator) cut(now time.Time) {
	a.endTry(now)
	if !a.inFlight {
		a.isolate(now)
	}
	if a.inFlight {
		return
	}
	a.pacer.Taken()
	a.fold(now)
	a.write(now)
}

// write dispatches the planned batch. It reports false if there is nothing to write;
// then fragments that need no write are settled at once.
func (a *Aggregator) write(now time.Time) bool {
	batch := a.ledger.Plan()
	if batch == nil || len(batch.Changes) == 0 {
		a.settleUnwritten(now, batch)
		return false
	}
	a.dispatch(job{batch: batch})
	return true
}

// settleUnwritten settles what is already in the kernel. Nothing is left to retry: a
// write that failed before has landed in part, or its objects are no longer wanted.
func (a *Aggregator) settleUnwritten(now time.Time, batch *dataplane.Batch) {
	a.pacer.Recovered()
	a.failing = failing{}
	a.lastError, a.nodeAtFault = "", false
	var settled []dataplane.Contribution
	if batch != nil {
		settled = a.ledger.Settle(batch, dataplane.Receipt{Outcome: dataplane.Landed})
	}
	a.settled(now, settled)
	a.repairDone(now)
}

// dispatch sends a job to the writer. It does not block: the channel holds one job, and
// there is never a second one in flight.
func (a *Aggregator) dispatch(j job) {
	a.inFlight = true
	j.limit = jobTimeout
	if j.batch != nil {
		if a.search.trying() {
			j.limit = a.tryLimit()
		}
		a.batched, a.batch = time.Now(), j.batch.Number
	}
	a.jobs <- j
}

// receive handles the result of a job.
func (a *Aggregator) receive(now time.Time, r result) {
	if r.ahead {
		return
	}
	if r.batch == nil {
		a.audited(now, r)
		return
	}
	a.config.Listen(BatchWritten{Domain: a.config.Domain, Batch: r.batch, Receipt: r.receipt})
	settled := a.ledger.Settle(r.batch, r.receipt)
	if r.receipt.Outcome == dataplane.Unknown {
		// Without a read, writes that build on something lost would fail forever.
		a.pacer.AuditFirst(now)
	}
	a.settled(now, settled)
	a.batched, a.batch = time.Time{}, 0 // what follows may begin the next write
	if a.ledger.Stats().Dirty == 0 || r.receipt.Outcome == dataplane.Landed && a.refusal == nil {
		a.repairDone(now)
	}
	a.learnUsual(&r.receipt)
	if r.receipt.Outcome == dataplane.Landed && a.refusal == nil {
		a.lastWrite, a.lastError, a.nodeAtFault = now, "", false
	}
	switch {
	case a.refusal != nil:
		a.noteError(r.receipt)
		a.controlDone(now, r.receipt)
	case len(a.search.current.keys) > 0:
		a.tryDone(now, r.receipt)
	default:
		a.ordinary(now, r)
	}
}

// ordinary handles the receipt of an ordinary write.
func (a *Aggregator) ordinary(now time.Time, r result) {
	a.tryTurn = true
	// A command may fail with everything in place; then there is no culprit.
	landed := r.receipt.Outcome == dataplane.Landed || a.ledger.Stats().Dirty == 0
	if landed {
		a.lastError, a.nodeAtFault, a.failing = "", false, failing{}
		a.wrote(now, r.receipt, true)
		return
	}
	a.noteError(r.receipt)
	if isRefusal(r.receipt.Outcome) {
		a.failing = failing{}
		if !a.refused(now, r.batch, r.receipt) {
			a.wrote(now, r.receipt, false)
			a.blameNode(now)
		}
		return
	}
	a.failing = failing{batch: r.batch, receipt: r.receipt, times: a.failing.times + 1}
	if r.receipt.Took >= jobTimeout {
		a.failing.times = failuresMax // nobody waits for three more
	}
	if r.receipt.Outcome == dataplane.Busy && a.isolateFew(now) {
		a.pacer.Ended(now, r.receipt.Took)
		return
	}
	a.wrote(now, r.receipt, false)
}

// wrote tells the pacer of the end of a write.
func (a *Aggregator) wrote(now time.Time, receipt dataplane.Receipt, landed bool) {
	a.pacer.Wrote(now, receipt.Took, landed, a.jitter())
	if !landed && receipt.Outcome == dataplane.Busy {
		a.pacer.Busy()
	}
}

// noteError keeps the error of a failed write.
func (a *Aggregator) noteError(receipt dataplane.Receipt) {
	if receipt.Err != nil {
		a.lastError = receipt.Err.Error()
	}
}

// audited handles the result of a read.
func (a *Aggregator) audited(now time.Time, r result) {
	a.pacer.Audited(now, r.took, r.err == nil)
	done := AuditDone{Domain: a.config.Domain, Objects: r.objects, Took: r.took, Err: r.err}
	if r.err == nil {
		if !a.adopted {
			a.foldAll(now)
		}
		done.Drift = a.ledger.Observe(r.objects)
	} else {
		a.lastError = r.err.Error()
	}
	a.config.Listen(done)
	a.beginRepair(now, &done)
	if r.err != nil && !a.adopted {
		a.pacer.Wrote(now, r.took, false, a.jitter())
		a.pacer.AuditSoon(now)
		return
	}
	switch {
	case r.err != nil:
	case !a.adopted:
		a.adopted = true
		a.settled(now, a.ledger.Adopt(a.absent(), a.origin))
	case a.drifted.IsZero() && done.Drift.Undone != nil:
		a.drifted = now
	}
	if a.search.idle() {
		a.quarantine.askOldest()
	}
	if until, held := a.repairs.held(now); held {
		a.pacer.AuditBy(until)
		return
	}
	a.cut(now)
}

// absent returns the Services that exist and have not submitted.
func (a *Aggregator) absent() (all []ledger.Absent) {
	absent, large := a.gate.absent()
	for _, key := range absent {
		all = append(all, ledger.Absent{Key: key, Created: a.config.Created(key)})
	}
	for _, key := range large {
		all = append(all, ledger.Absent{Key: key})
	}
	return all
}

// settled sends the verdicts for what is fully in the kernel.
func (a *Aggregator) settled(now time.Time, contributions []dataplane.Contribution) {
	for _, c := range contributions {
		a.waits.end(c.Key)
		if a.quarantine.release(c.Key) {
			a.listed = nil
			a.quarantine.askOldest() // what blocked it may block others no longer
			a.config.Listen(Freed{Domain: a.config.Domain, Key: c.Key})
		}
		a.config.Listen(Applied{Domain: a.config.Domain, Contribution: c, At: now,
			Batched: a.batched, Batch: a.batch})
		a.config.Verdicts(dataplane.Verdict{Key: c.Key, Domain: a.config.Domain, Revision: c.Revision})
	}
	a.tellShadows()
	if a.ledger.Stats().Dirty > 0 && len(contributions) > 0 {
		a.pacer.Waiting(now) // leftovers of a former process may go now
	}
	a.restored()
}

// restored reports whether the kernel is as wanted, and notes it. What a search and its
// control write leave out for a while is still missing.
func (a *Aggregator) restored() bool {
	left := a.ledger.Stats()
	if left.Dirty > 0 || a.refusal != nil || !a.search.idle() {
		return false
	}
	a.drifted = time.Time{}
	if left.Pending == 0 {
		a.waits.clear() // of suspects whose objects were only repaired
	}
	return true
}

// tellShadows reports the frontends that Services lost to each other. Changes that a
// search makes and reverts do not count.
func (a *Aggregator) tellShadows() {
	if !a.search.idle() {
		return
	}
	domain := a.config.Domain
	for news := a.ledger.Shadows(); len(news) > 0; {
		first := news[0]
		var frontends dataplane.Frontends
		for len(news) > 0 && news[0].Key == first.Key && news[0].By == first.By &&
			news[0].Over == first.Over {
			frontends, news = append(frontends, news[0].Frontend), news[1:]
		}
		if first.Over {
			a.config.Listen(Unshadowed{Domain: domain, Key: first.Key, By: first.By, Frontends: frontends})
		} else {
			a.config.Listen(Shadowed{Domain: domain, Key: first.Key, By: first.By, Frontends: frontends})
		}
	}
}
