// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// heard is an event with its time.
type heard struct {
	at    time.Time
	event aggregator.Event
}

// eventLog records the events of aggregators, and the failures of actors.
type eventLog struct {
	mu     sync.Mutex
	events []heard
	failed []supervisor.Event[service.Key]
}

// Supervisor implements observe.Listener.
func (l *eventLog) Supervisor(event supervisor.Event[service.Key]) {
	switch event.What.(type) {
	case supervisor.Failed, supervisor.Stuck, supervisor.Parked:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.failed = append(l.failed, event)
	}
}

// Actors implements observe.Listener.
func (l *eventLog) Actors(actors.Event) {}

func (*eventLog) Source(source.Shadowed) {}

// Aggregator implements observe.Listener.
func (l *eventLog) Aggregator(event aggregator.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, heard{time.Now(), event})
}

// since returns the events after a moment.
func (l *eventLog) since(after time.Time) []heard {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.IndexFunc(l.events, func(h heard) bool { return h.at.After(after) })
	if at < 0 {
		return nil
	}
	return slices.Clone(l.events[at:])
}

// await waits for an event after a moment, and returns it.
func (l *eventLog) await(t *testing.T, what string, after time.Time, is func(aggregator.Event) bool) heard {
	t.Helper()
	for began := time.Now(); time.Since(began) < testenv.Patience; time.Sleep(500 * time.Microsecond) {
		for _, h := range l.since(after) {
			if is(h.event) {
				return h
			}
		}
	}
	t.Fatalf("timed out waiting for %s; events: %s", what, l.list(after))
	return heard{}
}

// list prints the events after a moment, except for the applied ones.
func (l *eventLog) list(after time.Time) string {
	text := ""
	for _, h := range l.since(after) {
		if _, routine := h.event.(aggregator.Applied); !routine {
			text += "\n" + h.at.Format("05.000 ") + describe(h.event)
		}
	}
	return text
}

// applied reports whether an event says that a Service's fragment is in the kernel.
func applied(domain string, key service.Key) func(aggregator.Event) bool {
	return func(e aggregator.Event) bool {
		a, ok := e.(aggregator.Applied)
		return ok && a.Domain == domain && a.Key == key
	}
}

// wrote reports whether an event is a write of a domain with some outcome.
func wrote(domain string, outcome dataplane.Outcome) func(aggregator.Event) bool {
	return func(e aggregator.Event) bool {
		w, ok := e.(aggregator.BatchWritten)
		return ok && w.Domain == domain && w.Receipt.Outcome == outcome
	}
}

// count returns the number of events after a moment.
func (l *eventLog) count(after time.Time, is func(aggregator.Event) bool) int {
	n := 0
	for _, h := range l.since(after) {
		if is(h.event) {
			n++
		}
	}
	return n
}

// describe returns an event in a line.
func describe(event aggregator.Event) string {
	switch e := event.(type) {
	case aggregator.BatchWritten:
		return fmt.Sprintf("%s: batch of %d changes: %v", e.Domain, len(e.Batch.Changes), e.Receipt)
	case aggregator.AuditDone:
		return fmt.Sprintf("%s: audit: %+v, %v", e.Domain, e.Drift, e.Err)
	default:
		return fmt.Sprintf("%T%+v", e, e)
	}
}

// awaitContents waits until the kernel holds exactly what is wanted.
func (p *proxyNode) awaitContents(family service.Family, wanted func() contents, what string) {
	p.Helper()
	for began := time.Now(); ; time.Sleep(500 * time.Microsecond) {
		want, now := wanted(), contentsOf(p.read(family))
		missing, any := want.missing(now)
		if !any && len(now) == len(want) {
			return
		}
		if time.Since(began) > testenv.Patience {
			p.Fatalf("%s %s: %d objects, want %d; for example %s %x is wrong: %s",
				family, what, len(now), len(want), missing.Container, missing.Name, p.events.list(began))
		}
	}
}

// awaitRepair waits for an audit that finds the damage, without which nothing is proven, and for a
// write after it.
func (p *proxyNode) awaitRepair(family service.Family, after time.Time, what string) {
	p.Helper()
	name := p.domains[family].name
	found := p.events.await(p.T, what+": an audit that finds it", after, func(e aggregator.Event) bool {
		a, ok := e.(aggregator.AuditDone)
		return ok && a.Domain == name && a.Drift.Any()
	}).at
	p.events.await(p.T, what+": a write that repairs it", found, wrote(name, dataplane.Landed))
}

// checkWork fails unless so many writes since a moment have repaired damage, each after one audit
// that found it. A repair that follows another one too soon waits on purpose, and begins with
// another audit. The kernel holds what a write brought a moment before the write is reported, so
// it waits for the reports.
func (p *proxyNode) checkWork(family service.Family, since time.Time, want int, what string) {
	p.Helper()
	name := p.domains[family].name
	for began := time.Now(); p.events.count(since, wrote(name, dataplane.Landed)) < want; time.Sleep(500 * time.Microsecond) {
		if time.Since(began) > testenv.Patience {
			break
		}
	}
	found := p.events.count(since, func(e aggregator.Event) bool {
		a, ok := e.(aggregator.AuditDone)
		return ok && a.Domain == name && a.Drift.Any()
	})
	waited := p.events.count(since, func(e aggregator.Event) bool {
		r, ok := e.(aggregator.RepairBegan)
		return ok && r.Domain == name && r.Pause > 0
	})
	written := p.events.count(since, wrote(name, dataplane.Landed))
	if found != want+waited || written != want {
		p.Errorf("%s %s: %d audits found it, %d repairs waited and %d writes landed, want %d: %s",
			family, what, found, waited, written, want, p.events.list(since))
	}
}

// lastWrite returns when the last write after a moment had landed.
func (p *proxyNode) lastWrite(after time.Time) time.Time {
	var last time.Time
	for _, h := range p.events.since(after) {
		if w, ok := h.event.(aggregator.BatchWritten); ok && w.Receipt.Outcome == dataplane.Landed {
			last = h.at
		}
	}
	return last
}

// awaitRendered waits until a family's table holds exactly what was rendered for the Services that
// exist, except for some.
func (p *proxyNode) awaitRendered(family service.Family, but map[service.Key]bool) {
	p.Helper()
	there := map[service.Key]bool{service.Node: true}
	for _, s := range liveServices {
		there[s.key()] = true
	}
	for n := range p.quiet {
		there[quietKey(n)] = true
	}
	for began := time.Now(); !p.domains[family].renderer.knows(there); time.Sleep(time.Millisecond) {
		if time.Since(began) > testenv.Patience {
			p.Fatalf("%s: not all Services were rendered", family)
		}
	}
	want := func() contents {
		return p.domains[family].renderer.contents(func(key service.Key) bool { return there[key] && !but[key] })
	}
	p.awaitContents(family, want, "what was rendered")
}

// awaitAllRendered is awaitRendered for both families, without exceptions.
func (p *proxyNode) awaitAllRendered() {
	p.Helper()
	for _, family := range service.Families {
		p.awaitRendered(family, nil)
	}
}

// checkQuarantined waits until the status of both domains shows what a family has in quarantine.
// The status follows the events a moment later.
func (p *proxyNode) checkQuarantined(family service.Family, want ...string) {
	p.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		var here, there []string
		for _, status := range p.proxy.Status() {
			for _, q := range status.Quarantined {
				if status.Domain == p.domains[family].name {
					here = append(here, q.Key.String())
				} else {
					there = append(there, q.Key.String())
				}
			}
		}
		if slices.Equal(here, want) && len(there) == 0 {
			return
		}
		if time.Since(began) > testenv.Patience {
			p.Fatalf("%s has %v in quarantine, want %v; the other family has %v, want none", family, here, want, there)
		}
	}
}

// checkBlameless fails if a Service or the node was found at fault since a moment.
func (p *proxyNode) checkBlameless(since time.Time) {
	p.Helper()
	for _, h := range p.events.since(since) {
		switch h.event.(type) {
		case aggregator.Quarantined, aggregator.NodeAtFault:
			p.Errorf("found at fault: %s", describe(h.event))
		}
	}
}

// ms returns a duration in milliseconds, for messages.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
