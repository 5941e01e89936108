package aggregator

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/mailbox"
	"github.com/sluice-proxy/sluice/service"
)

// Aggregator owns one domain: its mailbox of fragments, its ledger, its pacer,
// its quarantine. At most one batch is in flight, and while it is, newer
// fragments keep replacing older ones in the mailbox.
//
// Concurrency: Submit, Prime, Skip, AuditSoon, Repace and Status may be called from
// anywhere and never block. Everything else belongs to the goroutine in Run. A
// panic in it is meant to end the process: it is the only owner of the ledger,
// and the way back is the ordinary start.
type Aggregator struct {
	config Config
	inbox  *mailbox.Mailbox[service.Key, *dataplane.Fragment]
	calls  *mailbox.Mailbox[call, []service.Key]
	urgent atomic.Bool
	status atomic.Pointer[Status]
	// nextPace is the newest that Repace was given.
	nextPace atomic.Pointer[Pace]
	// submitted is when the newest fragment was handed over, in nanoseconds
	// since 1970; 0 before the first.
	submitted atomic.Int64
	// stranger is the last that touched the kernel, as far as the kernel tells;
	// nil while nobody is known.
	stranger atomic.Pointer[dataplane.Stranger]

	// Owned by Run.
	ledger  *ledger.Ledger
	pacer   *Pacer
	gate    *gate
	cells   quarantine
	repairs repairs
	// search holds the suspects of refused writes, accused those for whose sake a
	// control is in flight. nextTrial is when the next group may be tried.
	search    search
	accused   *accusation
	nextTrial time.Time
	// doubtful is set once the search has convicted somebody anew, until an audit is
	// asked for.
	doubtful bool
	origin   dataplane.Origin
	jobs     chan job
	results  chan result
	inFlight bool
	// announced is set once the opening of the gate has been told; adopted
	// once the kernel has been read for the first time. Nothing is written
	// before that.
	announced, adopted bool

	// waits knows who is not in force, and since when; arrived is since when
	// fragments wait to be folded, drifted since when the kernel is known to lack
	// something that was in force. Both are zero for nothing.
	waits            waits
	arrived, drifted time.Time
	// quarantined is what Status says of cells; nil when it has to be made anew.
	quarantined []QuarantinedKey
	lastWrite   time.Time
	lastError   string
	nodeAtFault bool
}

// New makes an aggregator; Run starts it.
func New(config Config) (*Aggregator, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	a := &Aggregator{
		config:  config,
		inbox:   mailbox.New[service.Key](math.MaxInt, newerFragment),
		calls:   mailbox.New[call, []service.Key](math.MaxInt, nil),
		ledger:  ledger.New(config.Layout, config.Naming),
		pacer:   NewPacer(config.Pace),
		gate:    newGate(config.GateWait),
		cells:   quarantine{cells: map[service.Key]*cell{}},
		waits:   newWaits(),
		repairs: newRepairs(),
		jobs:    make(chan job, 1),
		results: make(chan result, 1),
	}
	a.origin, _ = config.Writer.(dataplane.Origin)
	a.gate.held = config.MayWrite != nil
	a.publish()
	return a, nil
}

// newerFragment lets the newer fragment take the older one's seat; the earliest
// times and the urgency survive. The output of a former incarnation never
// replaces that of a later one.
func newerFragment(older, newer *dataplane.Fragment) *dataplane.Fragment {
	if newer.Revision.Compare(older.Revision) < 0 {
		return older
	}
	merged := *newer
	merged.Trigger = dataplane.Earliest(older.Trigger, newer.Trigger)
	merged.Received = dataplane.Earliest(older.Received, newer.Received)
	merged.Urgent = older.Urgent || newer.Urgent
	return &merged
}

// Domain names what this aggregator commits.
func (a *Aggregator) Domain() string { return a.config.Domain }

// Submit hands a fragment over; never blocks.
func (a *Aggregator) Submit(f *dataplane.Fragment) {
	if f.Urgent {
		a.urgent.Store(true)
	}
	a.submitted.Store(time.Now().UnixNano())
	a.inbox.Post(f.Key, f)
}

// Prime says that the source has delivered its first full picture, and names
// the keys whose fragments the first write waits for.
func (a *Aggregator) Prime(keys []service.Key) { a.calls.Post(call{verb: callPrime}, keys) }

// Skip says that the first write need not wait for a key: its actor failed, or there
// is none.
func (a *Aggregator) Skip(key service.Key) { a.calls.Post(call{callExcuse, key}, nil) }

// AuditSoon asks for an audit at once: somebody else touched the kernel.
func (a *Aggregator) AuditSoon(by dataplane.Stranger) {
	if by != (dataplane.Stranger{}) {
		a.stranger.Store(&by)
	}
	a.calls.Post(call{verb: callAudit}, nil)
}

// Repace changes the pacer's numbers. An error means that they make no sense, and
// that nothing has changed.
func (a *Aggregator) Repace(pace Pace) error {
	if err := pace.Validate(); err != nil {
		return fmt.Errorf("%s: %w", a.config.Domain, err)
	}
	a.nextPace.Store(&pace)
	a.calls.Post(call{verb: callPace}, nil)
	return nil
}

// Status gives the newest snapshot.
func (a *Aggregator) Status() Status {
	s := *a.status.Load()
	s.Waiting = a.inbox.Len()
	if submitted := a.submitted.Load(); submitted != 0 {
		s.Submitted = time.Unix(0, submitted)
	}
	return s
}

// Run works until the context ends. The rules stay in the kernel; a write in
// flight is given its chance to end.
func (a *Aggregator) Run(ctx context.Context) error {
	// The writer outlives ctx by one job, so that stopping does not cut a
	// write in half; the job itself is bounded by the write timeout.
	go func() {
		work(context.WithoutCancel(ctx), a.config.Writer, a.config.WriteTimeout, a.jobs, a.results)
		close(a.results)
	}()
	defer func() {
		close(a.jobs)
		for range a.results { // let the last job end
		}
	}()
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	mayWrite := a.config.MayWrite
	for {
		alarm.Reset(a.act(time.Now()))
		a.publish()
		select {
		case <-ctx.Done():
			return nil
		case <-mayWrite:
			mayWrite, a.gate.held = nil, false
		case <-a.calls.Wake():
			a.answer(time.Now())
		case <-a.inbox.Wake():
			a.gather(time.Now())
		case r := <-a.results:
			a.inFlight = false
			a.receive(time.Now(), r)
		case <-alarm.C:
		}
	}
}

// answer obeys the control messages.
func (a *Aggregator) answer(now time.Time) {
	entries, _ := a.calls.Take(0)
	for _, e := range entries {
		switch e.Key.verb {
		case callPrime:
			a.gate.prime(now, e.Message)
		case callExcuse:
			a.gate.excuse(now, e.Key.key)
		case callAudit:
			a.pacer.AuditSoon(now)
			a.heard(now)
		case callPace:
			a.pacer.Repace(now, *a.nextPace.Load())
		}
	}
}

// gather takes note that something waits. While the gate is closed, fragments
// are folded at once, to see who has submitted; later they stay in the mailbox,
// where newer ones may still replace them, until a batch is cut.
func (a *Aggregator) gather(now time.Time) {
	a.pacer.Waiting(now, a.urgent.Swap(false))
	if a.arrived.IsZero() {
		a.arrived = now
	}
	if !a.gate.opened {
		a.fold(now)
	}
}

// fold takes what is waiting into the ledger.
func (a *Aggregator) fold(now time.Time) {
	entries, _ := a.inbox.Take(0)
	for _, e := range entries {
		f := e.Message
		a.gate.pass(now, f.Key)
		since := dataplane.Earliest(a.arrived, now)
		if !a.ledger.Want(f) {
			a.config.Listen(LateRefused{Domain: a.config.Domain, Key: f.Key, Revision: f.Revision})
			continue
		}
		// A quarantined key is tried apart from its neighbours.
		if !a.cells.ask(f.Key) {
			a.waits.begin(f.Key, since)
		}
	}
	if a.inbox.Len() == 0 {
		a.arrived = time.Time{}
	}
}

// foldAll takes everything that is waiting into the ledger.
func (a *Aggregator) foldAll(now time.Time) {
	for a.inbox.Len() > 0 {
		a.fold(now)
	}
}

// act starts what is due, and gives the time to look again.
func (a *Aggregator) act(now time.Time) time.Duration {
	const never = time.Hour
	if a.inFlight {
		return never
	}
	if open, again := a.gate.open(now); !open {
		if again.IsZero() {
			return never
		}
		return again.Sub(now)
	}
	if !a.announced {
		a.announced = true
		a.config.Listen(GateOpened{Domain: a.config.Domain, Missing: a.gate.missing()})
	}
	action, again := a.pacer.Next(now)
	switch {
	case action == Audit, action == Write && !a.adopted:
		a.pacer.Auditing()
		a.repairs.auditing()
		a.dispatch(job{})
		return never
	case action == Write:
		a.cut(now)
		if a.inFlight {
			return never
		}
		return 0
	}
	if a.pacer.Failures() > 0 {
		return max(0, again.Sub(now)) // after what has failed has been written
	}
	key, due, next := a.cells.due(now)
	switch {
	case due:
		a.cells.tried(key)
		a.search.alone(key)
	case !next.IsZero() && next.Before(again):
		again = next
	}
	switch {
	case a.search.idle() && !a.doubtful:
	case now.Before(a.nextTrial):
		if a.nextTrial.Before(again) {
			again = a.nextTrial
		}
	case a.try(now):
		return never
	default:
		return 0 // the search is over
	}
	return max(0, again.Sub(now))
}

// cut takes what is waiting and sends the batch on its way.
func (a *Aggregator) cut(now time.Time) {
	a.pacer.Taken()
	a.fold(now)
	a.write(now)
}

// write plans and dispatches; it reports false when there was nothing to
// write, in which case what needs no write is settled at once.
func (a *Aggregator) write(now time.Time) bool {
	batch := a.ledger.Plan()
	if batch == nil || len(batch.Changes) == 0 {
		a.settleUnwritten(now, batch)
		return false
	}
	a.dispatch(job{batch: batch})
	return true
}

// settleUnwritten settles what is in the kernel already. Had a write failed
// before, it has landed in part, or what it was about is not wanted any more:
// there is nothing left to retry.
func (a *Aggregator) settleUnwritten(now time.Time, batch *dataplane.Batch) {
	a.pacer.Recovered()
	a.lastError, a.nodeAtFault = "", false
	var settled []dataplane.Contribution
	if batch != nil {
		settled = a.ledger.Settle(batch, dataplane.Receipt{Outcome: dataplane.Landed})
	}
	a.settled(now, settled)
	a.mended(now)
}

// dispatch hands a job to the writer; the channel holds one and there is never
// a second in flight, so it does not block.
func (a *Aggregator) dispatch(j job) {
	a.inFlight = true
	a.jobs <- j
}

// receive takes the account of a job.
func (a *Aggregator) receive(now time.Time, r result) {
	if r.batch == nil {
		a.audited(now, r)
		return
	}
	a.config.Listen(BatchWritten{Domain: a.config.Domain, Batch: r.batch, Receipt: r.receipt})
	settled := a.ledger.Settle(r.batch, r.receipt)
	if r.receipt.Outcome == dataplane.Unknown {
		// Writing again what builds on something lost would fail for ever.
		a.pacer.AuditFirst(now)
	}
	a.settled(now, settled)
	if a.ledger.Stats().Dirty == 0 || r.receipt.Outcome == dataplane.Landed && a.accused == nil {
		a.mended(now)
	}
	if r.receipt.Outcome == dataplane.Landed && a.accused == nil {
		a.lastWrite, a.lastError, a.nodeAtFault = now, "", false
	}
	switch {
	case a.accused != nil:
		a.noted(r.receipt)
		a.controlled(now, r.receipt)
	case len(a.search.current.keys) > 0:
		a.judge(now, r.receipt)
	default:
		a.ordinary(now, r)
	}
}

// ordinary takes the account of an ordinary write.
func (a *Aggregator) ordinary(now time.Time, r result) {
	// A command may fail with everything in place, and nobody is to blame for that.
	landed := r.receipt.Outcome == dataplane.Landed || a.ledger.Stats().Dirty == 0
	if landed {
		a.lastError, a.nodeAtFault = "", false
	} else {
		a.noted(r.receipt)
	}
	refused := !landed && isRefusal(r.receipt.Outcome)
	if refused && a.accuse(now, r.batch, r.receipt) {
		return
	}
	a.pacer.Wrote(now, r.receipt.Took, landed, rand.Float64())
	if refused {
		a.blameNode(now)
	}
}

// noted keeps the words of a failure.
func (a *Aggregator) noted(receipt dataplane.Receipt) {
	if receipt.Err != nil {
		a.lastError = receipt.Err.Error()
	}
}

// audited takes the kernel's own account.
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
		a.pacer.Wrote(now, r.took, false, rand.Float64())
		a.pacer.AuditSoon(now)
		return
	}
	switch {
	case r.err != nil:
	case !a.adopted:
		a.adopted = true
		a.settled(now, a.ledger.Adopt(a.gate.absent(), a.origin))
	case a.drifted.IsZero() && done.Drift.Undone != nil:
		a.drifted = now
	}
	if a.search.idle() {
		a.cells.askOldest()
	}
	if until, held := a.repairs.held(now); held {
		a.pacer.AuditBy(until)
		return
	}
	a.cut(now)
}

// settled gives the verdicts for what is wholly in the kernel.
func (a *Aggregator) settled(now time.Time, contributions []dataplane.Contribution) {
	for _, c := range contributions {
		a.waits.end(c.Key)
		if a.cells.free(c.Key) {
			a.quarantined = nil
			a.cells.askOldest() // what was in its way may be in nobody's any more
			a.config.Listen(Freed{Domain: a.config.Domain, Key: c.Key})
		}
		a.config.Listen(Applied{Domain: a.config.Domain, Contribution: c, At: now})
		a.config.Verdicts(dataplane.Verdict{Key: c.Key, Domain: a.config.Domain, Revision: c.Revision})
	}
	a.tellShadows()
	if a.ledger.Stats().Dirty == 0 {
		a.drifted = time.Time{}
	} else if len(contributions) > 0 {
		a.pacer.Waiting(now, false) // what the last heir of a former process has let go
	}
}

// tellShadows says who has lost a frontend to whom. What a search takes out and
// puts back in between is nobody's loss.
func (a *Aggregator) tellShadows() {
	if !a.search.idle() {
		return
	}
	for news := a.ledger.Shadows(); len(news) > 0; {
		first := news[0]
		var frontends dataplane.Frontends
		for len(news) > 0 && news[0].Key == first.Key && news[0].By == first.By && news[0].Over == first.Over {
			frontends, news = append(frontends, news[0].Frontend), news[1:]
		}
		if first.Over {
			a.config.Listen(Unshadowed{Domain: a.config.Domain, Key: first.Key, By: first.By, Frontends: frontends})
		} else {
			a.config.Listen(Shadowed{Domain: a.config.Domain, Key: first.Key, By: first.By, Frontends: frontends})
		}
	}
}
