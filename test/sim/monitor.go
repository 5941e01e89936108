// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
)

// tally counts what happened, by kind.
type tally map[string]int

// monitor listens to all events, and records an error for each event that must not happen.
type monitor struct {
	// log, when set, receives every event.
	log func(string)

	// misquarantined, when set, returns an error if a Service was quarantined without cause.
	misquarantined func(aggregator.Quarantined) error

	mu      sync.Mutex
	ear     func(aggregator.Event)
	errs    []error
	settled map[string]map[service.Key]service.Revision
	seen    tally
}

var _ observe.Listener = (*monitor)(nil)

func newMonitor(log func(string)) *monitor {
	return &monitor{log: log, settled: map[string]map[service.Key]service.Revision{}, seen: tally{}}
}

// object records something that must not happen.
func (m *monitor) object(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.errs = append(m.errs, err)
}

// objections returns the errors recorded so far.
func (m *monitor) objections() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return errors.Join(m.errs...)
}

// restarted notes that another process took over, whose revisions start from one again.
func (m *monitor) restarted() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.settled)
}

// setEar sets a function that receives the events of aggregators; nil for none.
func (m *monitor) setEar(hear func(aggregator.Event)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ear = hear
}

// count counts one event of a kind.
func (m *monitor) count(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[what]++
}

// tally returns a copy of the counts so far.
func (m *monitor) tally() tally {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.seen)
}

// Supervisor implements observe.Listener.
func (m *monitor) Supervisor(e supervisor.Event[service.Key]) {
	m.print(e)
	m.count(fmt.Sprintf("%T", e.What))
}

// Actors implements observe.Listener.
func (m *monitor) Actors(e actors.Event) { m.print(e) }

// Source implements observe.Listener.
func (*monitor) Source(source.Shadowed) {}

// Aggregator implements observe.Listener.
func (m *monitor) Aggregator(e aggregator.Event) {
	m.print(e)
	if q, is := e.(aggregator.Quarantined); is && m.misquarantined != nil {
		if err := m.misquarantined(q); err != nil {
			m.object(err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ear != nil {
		m.ear(e)
	}
	m.seen[fmt.Sprintf("%T", e)]++
	switch e := e.(type) {
	case aggregator.BatchWritten:
		m.seen["write "+e.Receipt.Outcome.String()]++
		if e.Receipt.Written.Calls > 1 {
			m.seen["write divided"]++
		}
		if e.Receipt.Outcome == dataplane.Landed && e.Batch.Left > 0 {
			m.seen["write in turns"]++
		}
	case aggregator.Applied:
		m.settle("applied", e.Domain, e.Key, e.Revision)
	case aggregator.Quarantined:
		m.settle("quarantined", e.Domain, e.Key, e.Revision)
	}
}

// settle notes an ack, and objects if a newer revision already got one.
func (m *monitor) settle(result, domain string, key service.Key, revision service.Revision) {
	if m.settled[domain] == nil {
		m.settled[domain] = map[service.Key]service.Revision{}
	}
	if before := m.settled[domain][key]; revision.Compare(before) < 0 {
		m.errs = append(m.errs, fmt.Errorf("%s: %v %s at revision %v after an ack for %v",
			domain, key, result, revision, before))
	}
	m.settled[domain][key] = revision
}

func (m *monitor) print(e any) {
	if m.log == nil {
		return
	}
	switch e := e.(type) {
	case aggregator.BatchWritten:
		m.log(fmt.Sprintf("%v wrote %d changes for %d Services: %v",
			e.Domain, len(e.Batch.Changes), len(e.Batch.Contributions), e.Receipt))
	case aggregator.Applied, aggregator.AuditDone:
	case supervisor.Event[service.Key]:
		if stuck, ok := e.What.(supervisor.Stuck); ok {
			stuck.Stack = ""
			e.What = stuck
		}
		m.log(fmt.Sprintf("%v: %T%+v", e.Child, e.What, e.What))
	default:
		m.log(fmt.Sprintf("%T%+v", e, e))
	}
}

// since formats virtual time.
func since(start time.Time) string { return time.Since(start).Round(time.Millisecond).String() }
