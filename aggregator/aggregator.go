// Package aggregator owns what happens between the actors and one domain's writer.
// An Aggregator gathers the fragments that actors submit, decides with its Pacer
// when to write, keeps the ledger, hands batches to the writer one at a time, reads
// the receipts, searches for the Services that the kernel rejects, and sends the
// verdicts. The proxy makes one per domain.
//
// The decisions are pure: Pacer, gate, search, quarantine, repairs and waits do no
// I/O and read no clock. Aggregator carries them out.
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
	// Created returns when a Service was created, by the API; zero if it is not known. It is
	// for Services that have not submitted at the start, and must not block. Optional.
	Created func(service.Key) time.Time
	// Verdicts receives the answers; it must not block.
	Verdicts func(dataplane.Verdict)
	// Listen receives the events, on the aggregator's goroutine; it must not block.
	// Optional.
	Listen func(Event)
}

func (c Config) withDefaults() Config {
	defaulted(&c.GateWait, 10*time.Second)
	if c.Listen == nil {
		c.Listen = func(Event) {}
	}
	if c.Created == nil {
		c.Created = func(service.Key) time.Time { return time.Time{} }
	}
	if c.Verdicts == nil {
		c.Verdicts = func(dataplane.Verdict) {}
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Domain == "":
		return fmt.Errorf("aggregator: a domain needs a name")
	case c.Writer == nil:
		return fmt.Errorf("aggregator %s: a domain needs a writer", c.Domain)
	case c.GateWait < 0:
		return fmt.Errorf("aggregator %s: gate wait %v: want no negative duration", c.Domain, c.GateWait)
	}
	if err := c.Pace.Validate(); err != nil {
		return fmt.Errorf("aggregator %s: %w", c.Domain, err)
	}
	return nil
}

// Aggregator owns one domain: its mailbox of fragments, its ledger, its pacer and its
// quarantine. At most one batch is in flight. Meanwhile newer fragments keep replacing
// older ones in the mailbox.
//
// Concurrency: Submit, Prime, Skip, Forgo, AuditSoon, Repace and Status may be called from
// anywhere and never block. Account and Standing may be called from anywhere too, and wait
// for an answer. Everything else belongs to the goroutine in Run. A panic
// in it ends the process: it is the only owner of the ledger, and recovery is the
// ordinary start.
type Aggregator struct {
	config Config
	inbox  *mailbox.Mailbox[service.Key, *dataplane.Fragment]
	calls  *mailbox.Mailbox[call, []service.Key]
	// questions are put by ask; ended is closed at the end of Run.
	questions chan func()
	ended     chan struct{}
	status    atomic.Pointer[Status]
	// nextPace is the argument of the last Repace.
	nextPace atomic.Pointer[Pace]
	// submitted is the time of the last Submit, in nanoseconds since 1970; 0 before
	// the first.
	submitted atomic.Int64
	// stranger is the last known process that changed our objects.
	stranger atomic.Pointer[dataplane.Stranger]

	// jitter returns a number in [0, 1); see Pacer.Wrote.
	jitter func() float64

	// Owned by Run.
	ledger     *ledger.Ledger
	pacer      *Pacer
	gate       *gate
	quarantine quarantine
	repairs    repairs
	// search holds the suspects of refused writes. refusal is set while the control
	// write after a refused one is in flight. nextTry is when the next group may be
	// tried.
	search  search
	refusal *refusal
	nextTry time.Time
	// usual is the duration of the longest of the last writes that landed or were rejected.
	usual time.Duration
	// failing has the last ordinary writes, if they failed without a refusal. tryTurn is
	// set if a try may go before the next ordinary write.
	failing failing
	tryTurn bool
	// recheck is set once the search has found a new culprit, until an audit is
	// requested.
	recheck  bool
	origin   dataplane.Origin
	jobs     chan job
	results  chan result
	inFlight bool
	// batched is when the write in flight began, and batch its number.
	batched time.Time
	batch   uint64
	// announced is set once GateOpened was emitted, and synced once Synced was; adopted
	// once the kernel has been read. Nothing is written before.
	announced, adopted, synced bool
	// aheadBegun is set once readAhead has begun.
	aheadBegun bool

	// waits has the keys that are not in force. arrived is when the oldest fragment
	// in the mailbox came, drifted is when an audit found that something in force
	// was undone; zero for none.
	waits            waits
	arrived, drifted time.Time
	// listed is Status.Quarantined; nil if it is out of date.
	listed      []QuarantinedKey
	lastWrite   time.Time
	lastError   string
	nodeAtFault bool
}

// call is the key of a control message; repeated calls become one.
type call struct {
	verb callVerb
	key  service.Key
	// incarnation is that of callForgo.
	incarnation uint64
}

type callVerb uint8

const (
	callPrime callVerb = iota
	callSkip
	callForgo
	callAudit
	callPace
)

// New makes an aggregator; Run starts it.
func New(config Config) (*Aggregator, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	a := &Aggregator{
		config:     config,
		inbox:      mailbox.New[service.Key](math.MaxInt, newerFragment),
		calls:      mailbox.New[call, []service.Key](math.MaxInt, nil),
		jitter:     rand.Float64,
		ledger:     ledger.New(config.Layout, config.Naming),
		pacer:      NewPacer(config.Pace),
		gate:       newGate(config.GateWait),
		quarantine: quarantine{held: map[service.Key]*heldKey{}},
		waits:      newWaits(),
		repairs:    newRepairs(),
		questions:  make(chan func()),
		ended:      make(chan struct{}),
		jobs:       make(chan job, 1),
		results:    make(chan result, 1),
	}
	a.origin, _ = config.Writer.(dataplane.Origin)
	a.gate.held = config.MayWrite != nil
	a.publish()
	return a, nil
}

// newerFragment replaces the older fragment by the newer one, and keeps the earliest
// times. The output of a former incarnation never replaces that of a later one.
func newerFragment(older, newer *dataplane.Fragment) *dataplane.Fragment {
	if newer.Revision.Compare(older.Revision) < 0 {
		return older
	}
	merged := *newer
	merged.Trigger = dataplane.Earliest(older.Trigger, newer.Trigger)
	merged.Received = dataplane.Earliest(older.Received, newer.Received)
	merged.Trail = newer.Trail.Since(older.Trail)
	return &merged
}

// Submit takes a fragment.
func (a *Aggregator) Submit(f *dataplane.Fragment) {
	a.submitted.Store(time.Now().UnixNano())
	a.inbox.Post(f.Key, f)
}

// Prime names the keys whose fragments the first write waits for: all that exist.
func (a *Aggregator) Prime(keys []service.Key) { a.calls.Post(call{verb: callPrime}, keys) }

// Skip lets the first write go ahead without a key, because its actor failed or it has
// none.
func (a *Aggregator) Skip(key service.Key) { a.calls.Post(call{verb: callSkip, key: key}, nil) }

// Forgo lets the first write and the first sync go ahead without a key that asks for too much to be
// rendered. What a former process or incarnation left of it stays, with the rank of the youngest: it may
// have given up addresses since.
func (a *Aggregator) Forgo(key service.Key, incarnation uint64) {
	a.calls.Post(call{callForgo, key, incarnation}, nil)
}

// AuditSoon requests an audit because another program changed the kernel.
func (a *Aggregator) AuditSoon(by dataplane.Stranger) {
	if by != (dataplane.Stranger{}) {
		a.stranger.Store(&by)
	}
	a.calls.Post(call{verb: callAudit}, nil)
}

// Repace changes the pacer's numbers. After an error, nothing has changed.
func (a *Aggregator) Repace(pace Pace) error {
	if err := pace.Validate(); err != nil {
		return fmt.Errorf("%s: %w", a.config.Domain, err)
	}
	a.nextPace.Store(&pace)
	a.calls.Post(call{verb: callPace}, nil)
	return nil
}

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
		work(context.WithoutCancel(ctx), a.config.Writer, a.jobs, a.results)
		close(a.results)
	}()
	defer func() {
		close(a.jobs)
		for range a.results { // let the last job end
		}
	}()
	defer close(a.ended)
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
		case answer := <-a.questions:
			answer()
		case r := <-a.results:
			a.inFlight = false
			a.receive(time.Now(), r)
		case <-alarm.C:
		}
	}
}

// answer handles the control messages.
func (a *Aggregator) answer(now time.Time) {
	entries, _ := a.calls.Take()
	for _, e := range entries {
		switch e.Key.verb {
		case callPrime:
			a.gate.prime(now, e.Message)
		case callSkip:
			a.gate.skip(now, e.Key.key)
		case callForgo:
			a.forgo(now, e.Key.key, e.Key.incarnation)
		case callAudit:
			a.pacer.AuditSoon(now)
			a.heard(now)
		case callPace:
			a.pacer.Repace(now, *a.nextPace.Load())
		}
	}
}

// forgo handles callForgo.
func (a *Aggregator) forgo(now time.Time, key service.Key, incarnation uint64) {
	a.gate.forgo(now, key)
	a.ledger.Forgo(key, incarnation)
	if a.ledger.Stats().Dirty > 0 {
		a.pacer.Waiting(now)
	}
}

// gather notes that fragments wait. While the gate is closed it folds them at once, to
// see who has submitted. Later they stay in the mailbox, where newer ones may replace
// them, until a batch is cut.
func (a *Aggregator) gather(now time.Time) {
	a.pacer.Waiting(now)
	if a.arrived.IsZero() {
		a.arrived = now
	}
	if !a.gate.opened {
		a.fold(now)
	}
}

// fold moves the waiting fragments into the ledger.
func (a *Aggregator) fold(now time.Time) {
	entries, _ := a.inbox.Take()
	since := dataplane.Earliest(a.arrived, now)
	a.arrived = time.Time{} // what arrives from now on wakes the aggregator again
	for _, e := range entries {
		f := e.Message
		a.gate.pass(now, f.Key)
		if !a.ledger.Want(f) {
			a.config.Listen(LateRefused{Domain: a.config.Domain, Key: f.Key, Revision: f.Revision})
			continue
		}
		// A quarantined key is tried separately.
		if !a.quarantine.ask(f.Key) {
			a.waits.begin(f.Key, since)
		}
	}
}

// foldAll also folds what arrives meanwhile.
func (a *Aggregator) foldAll(now time.Time) {
	for a.inbox.Len() > 0 {
		a.fold(now)
	}
}
