// SPDX-License-Identifier: Apache-2.0

// Package aggregator owns what happens between the actors and one domain's writer.
// An Aggregator gathers the fragments that actors submit, decides with its Pacer
// when to write, keeps the ledger, gives batches to the writer one at a time, reads
// the receipts, finds the Services that the kernel rejects by bisection, and sends the
// acknowledgements. The proxy makes one per domain.
//
// A pure machine makes the decisions, with its Pacer, gate, bisection, quarantine and repairs: it maps a time and an
// event to effects. Aggregator drives it, with the mailbox, the clock, the timer and the writer's goroutine.
//
// These are the states of a fragment. The file write.go handles receipts, and isolate.go the path after a failure.
//
//	submitted ─► folded ─► in flight ──────────────── landed ────────────────► applied
//	               ▲         │  │  │                                              ▲
//	               └─ retry ─┘  │  └─ proven ──────────────────┐                  │
//	                            │                              ▼                  │
//	                            └─ search ─► held ─► accused ─► quarantined       │
//	                                          │                  │                │
//	                                          └── landed ────────┴─ landed later ─┘
//
//	retry        the write failed without a rejection, fewer than four times
//	search       it was rejected, or failed again: its Services are held, and tried in halves
//	proven       the writer wrote object by object, and reports whose objects the kernel rejects
//	accused      the Service failed alone; a witness has to land unless something else landed in this search
//	quarantined  the Service is tried alone, after a change of it or an audit
//
// The domain serves, searches or proves. While it searches, changes of other Services are written between the tries.
// While it proves, it writes nothing new: a witness is the scaffold and what the kernel lacks of the last applied rules.
// If the kernel rejects the witness, the node is at fault until a later one lands.
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

// Config configures an Aggregator.
type Config struct {
	// Domain names what the writer commits, for example "iptables/IPv4".
	Domain string
	Writer dataplane.Writer
	// Layout is nil if the writer can change single elements.
	Layout dataplane.Layout
	// Naming reads the identities of the domain's objects; see dataplane.Renderer.
	Naming dataplane.Naming
	Pace   Pace
	// GateWait is how long the first write waits for primed keys that have not
	// submitted, counted from the last one that did. Default 10 s.
	GateWait time.Duration
	// MayWrite, if set, is closed once this process may read and write the kernel's
	// rules. Until then another process owns them.
	MayWrite <-chan struct{}
	// Unlanded, if set, returns the keys whose writes did not land in the previous process. Run calls it once, when
	// this process may write; it must return soon. The first writes of these keys come last, each alone.
	Unlanded func() []service.Key
	// Owner returns the Service that has a frontend. Optional.
	Owner ledger.Owner
	// Acks receives the acknowledgements; it must not block.
	Acks func(dataplane.Ack)
	// Listen receives the events, on the aggregator's goroutine; it must not block.
	// Optional.
	Listen func(Event)
}

func (c Config) withDefaults() Config {
	defaulted(&c.GateWait, 10*time.Second)
	if c.Listen == nil {
		c.Listen = func(Event) {}
	}
	if c.Unlanded == nil {
		c.Unlanded = func() []service.Key { return nil }
	}
	if c.Acks == nil {
		c.Acks = func(dataplane.Ack) {}
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Domain == "":
		return fmt.Errorf("aggregator: a domain needs a name")
	case c.Writer.Write == nil || c.Writer.Read == nil:
		return fmt.Errorf("aggregator %s: a domain needs a writer", c.Domain)
	case c.GateWait < 0:
		return fmt.Errorf("aggregator %s: gate wait %v: must not be negative", c.Domain, c.GateWait)
	}
	if err := c.Pace.Validate(); err != nil {
		return fmt.Errorf("aggregator %s: %w", c.Domain, err)
	}
	return nil
}

// Aggregator drives the machine of one domain: it has the mailbox of fragments, the clock, and the goroutine of the
// writer. At most one batch is in flight. Until it ends, newer fragments keep replacing older ones in the mailbox.
//
// Concurrency: Submit, Prime, Skip, AuditSoon and Status may be called from anywhere and never block. Account, Pending
// and Search may be called from anywhere too, and wait for an answer. Everything else belongs to the goroutine in Run.
// A panic in that goroutine ends the process, because the ledger has no other owner; recovery is the ordinary start.
type Aggregator struct {
	config Config
	inbox  *mailbox.Mailbox[service.Key, *dataplane.Fragment]
	// calls has the control messages; repeated ones, with the same key, become one.
	calls *mailbox.Mailbox[any, input]
	// questions carries the queries of ask; ended is closed at the end of Run.
	questions chan func()
	ended     chan struct{}
	status    atomic.Pointer[Status]
	// submitted is the time of the last Submit, in nanoseconds since 1970; 0 before
	// the first.
	submitted atomic.Int64
	// machine belongs to Run.
	machine *machine
	jobs    chan order
	// cut ends the context of the job in flight.
	cut     context.CancelCauseFunc
	results chan result
}

// New makes an aggregator; Run starts it.
func New(config Config) (*Aggregator, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	a := &Aggregator{
		config:    config,
		inbox:     mailbox.New[service.Key](math.MaxInt, newerFragment),
		calls:     mailbox.New[any](math.MaxInt, newerCall),
		machine:   newMachine(&config),
		questions: make(chan func()),
		ended:     make(chan struct{}),
		jobs:      make(chan order, 1),
		results:   make(chan result, 1),
	}
	a.machine.jitter = rand.Float64
	a.publish()
	return a, nil
}

// newerFragment replaces the older fragment by the newer one, and keeps the earliest times. The output of a previous
// incarnation never replaces that of a later one.
func newerFragment(older, newer *dataplane.Fragment) *dataplane.Fragment {
	if newer.Revision.Compare(older.Revision) < 0 {
		return older
	}
	merged := *newer
	merged.Trigger = dataplane.Earliest(older.Trigger, newer.Trigger)
	merged.Received = dataplane.Earliest(older.Received, newer.Received)
	merged.Trace = newer.Trace.Since(older.Trace)
	return &merged
}

// newerCall replaces an older control message by a newer one, except by an alarm that does not name a process.
func newerCall(older, newer input) input {
	if newer == input(alarmed{}) {
		return older
	}
	return newer
}

// Submit takes a fragment.
func (a *Aggregator) Submit(f *dataplane.Fragment) {
	a.submitted.Store(time.Now().UnixNano())
	a.inbox.Post(f.Key, f)
}

// Prime names the keys whose fragments the first write waits for: all that exist.
func (a *Aggregator) Prime(keys []service.Key) { a.calls.Post("prime", primed(keys)) }

// Skip lets the first write go ahead without a key, because its actor failed or it has
// none.
func (a *Aggregator) Skip(key service.Key) { a.calls.Post(skipped(key), skipped(key)) }

// AuditSoon requests an audit because another program changed the kernel.
func (a *Aggregator) AuditSoon(by dataplane.ForeignProcess) { a.calls.Post("audit", alarmed{by}) }

// Status returns the newest status.
func (a *Aggregator) Status() Status {
	s := *a.status.Load()
	s.Waiting = a.inbox.Len()
	if submitted := a.submitted.Load(); submitted != 0 {
		s.Submitted = time.Unix(0, submitted)
	}
	return s
}

// Run works until the context ends. The rules stay in the kernel, and a write in flight
// may finish.
func (a *Aggregator) Run(ctx context.Context) error {
	// The writer's goroutine outlives ctx by one job, which jobTimeout bounds,
	// so that stopping does not interrupt a write.
	go func() {
		work(a.config.Writer, a.jobs, a.results)
		close(a.results)
	}()
	beyond := context.WithoutCancel(ctx)
	a.cut = func(error) {}
	defer func() { a.cut(nil) }()
	defer func() {
		close(a.jobs)
		for range a.results { // let the last job end
		}
	}()
	defer close(a.ended)
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	mayWrite := a.config.MayWrite
	var inputs []input
	if mayWrite == nil {
		inputs = []input{released(a.config.Unlanded())}
	}
	for {
		alarm.Reset(a.step(beyond, time.Now(), inputs))
		a.publish()
		inputs = nil
		select {
		case <-ctx.Done():
			return nil
		case <-mayWrite:
			mayWrite, inputs = nil, []input{released(a.config.Unlanded())}
		case <-a.calls.Wake():
			inputs = a.called()
		case <-a.inbox.Wake():
			inputs = []input{arrived{}}
		case answer := <-a.questions:
			answer()
		case r := <-a.results:
			inputs = []input{r}
		case <-alarm.C:
		}
	}
}

// called returns the control messages.
func (a *Aggregator) called() (inputs []input) {
	entries, _ := a.calls.Take()
	for _, e := range entries {
		inputs = append(inputs, e.Message)
	}
	return inputs
}

// step passes what happened to the machine, and does what it returns. It returns the time until the
// next step, if nothing happens before.
func (a *Aggregator) step(ctx context.Context, now time.Time, inputs []input) time.Duration {
	for {
		r := a.machine.step(now, inputs...)
		for i := range r.told {
			if t := &r.told[i]; t.event != nil {
				a.config.Listen(t.event)
			} else {
				a.config.Acks(t.ack)
			}
		}
		switch {
		case r.begin != nil:
			a.start(ctx, r.begin)
		case r.cut:
			a.cut(errAwaited)
		}
		switch {
		case r.take:
			inputs = []input{a.taken()}
			continue
		case !r.wake.IsZero():
			return max(0, r.wake.Sub(now))
		}
		return time.Hour
	}
}

// start gives a job to the writer's goroutine.
func (a *Aggregator) start(ctx context.Context, j *job) {
	a.cut(nil) // the previous job is done
	ctx, a.cut = context.WithCancelCause(ctx)
	a.jobs <- order{*j, ctx} // does not block: there is never a second job
}

// taken empties the mailbox.
func (a *Aggregator) taken() (fragments taken) {
	entries, _ := a.inbox.Take()
	for _, e := range entries {
		fragments = append(fragments, e.Message)
	}
	return fragments
}

// publish replaces the status.
func (a *Aggregator) publish() {
	status := a.machine.status()
	a.status.Store(&status)
}
