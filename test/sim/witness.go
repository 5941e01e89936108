package sim

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/supervisor"
)

// tally counts what happened, by kind.
type tally map[string]int

func (t tally) add(what string) { t[what]++ }

// witness hears everything that happens, and objects to what must not.
type witness struct {
	// log, when set, is told every event.
	log func(string)

	mu      sync.Mutex
	errs    []error
	settled map[string]map[service.Key]service.Revision
	seen    tally
}

var _ observe.Listener = (*witness)(nil)

func newWitness(log func(string)) *witness {
	return &witness{log: log, settled: map[string]map[service.Key]service.Revision{}, seen: tally{}}
}

// object takes note of something that must not happen.
func (w *witness) object(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errs = append(w.errs, err)
}

// objections gives what was wrong so far.
func (w *witness) objections() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.errs...)
}

// renewed says that another process has taken over: it counts from one again.
func (w *witness) renewed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.settled)
}

// count adds to what was seen.
func (w *witness) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.add(what)
}

// tally gives a copy of what was seen so far.
func (w *witness) tally() tally {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.seen)
}

// Supervisor implements observe.Listener.
func (w *witness) Supervisor(e supervisor.Event[service.Key]) {
	w.tell(e)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.add(fmt.Sprintf("%T", e.What))
}

// Actors implements observe.Listener.
func (w *witness) Actors(e actors.Event) { w.tell(e) }

// Aggregator implements observe.Listener.
func (w *witness) Aggregator(e aggregator.Event) {
	w.tell(e)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.add(fmt.Sprintf("%T", e))
	switch e := e.(type) {
	case aggregator.BatchWritten:
		w.seen.add("write " + e.Receipt.Outcome.String())
	case aggregator.Applied:
		w.settle("applied", e.Domain, e.Key, e.Revision)
	case aggregator.Quarantined:
		w.settle("quarantined", e.Domain, e.Key, e.Revision)
	}
}

// settle objects to a verdict for a revision that was settled by a newer one.
func (w *witness) settle(verdict, domain string, key service.Key, revision service.Revision) {
	if w.settled[domain] == nil {
		w.settled[domain] = map[service.Key]service.Revision{}
	}
	if before := w.settled[domain][key]; revision.Compare(before) < 0 {
		w.errs = append(w.errs, fmt.Errorf("%s: %v %s at revision %v after a verdict for %v", domain, key, verdict, revision, before))
	}
	w.settled[domain][key] = revision
}

func (w *witness) tell(e any) {
	if w.log == nil {
		return
	}
	switch e := e.(type) {
	case aggregator.BatchWritten:
		w.log(fmt.Sprintf("%v wrote %d changes for %d Services: %v", e.Domain, len(e.Batch.Changes), len(e.Batch.Contributions), e.Receipt))
	case aggregator.Applied, aggregator.AuditDone:
	case supervisor.Event[service.Key]:
		if stuck, ok := e.What.(supervisor.Stuck); ok {
			stuck.Stack = ""
			e.What = stuck
		}
		w.log(fmt.Sprintf("%v: %T%+v", e.Child, e.What, e.What))
	default:
		w.log(fmt.Sprintf("%T%+v", e, e))
	}
}

// since formats virtual time.
func since(start time.Time) string { return time.Since(start).Round(time.Millisecond).String() }
