// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"errors"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// victim is the spoiled Service of a crowd. It has endpoints, and comes late in a batch.
var (
	victim       = quietKey(victimNumber)
	victimNumber = quietServices + crowd*2/3 + 4
)

// TestBatch_Interrupted: if a batch ends after two of its transactions, its receipt lists exactly what landed
// (checkingWriter compares). The rest lands soon, and connections to other Services continue.
func TestBatch_Interrupted(t *testing.T) {
	t.Parallel()
	p := newProxyNode(t)
	p.transactionBytes = crowdTransactionBytes
	p.start()
	tr := startTraffic(t, p.network.client)
	for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
		for _, what := range interruptions {
			tr.awaitAll(t, 2)
			p.interrupt(tr, family, what, "coming", quietServices+crowd)
			if what.rejects {
				what.outcome, what.reason = dataplane.Landed, nil
			}
			p.interrupt(tr, family, what, "going", quietServices)
		}
	}
	tr.end(t)
	p.checkAdopted()
	p.stop()
}

// interrupt makes a crowd come or go, which leaves so many quiet Services.
func (p *proxyNode) interrupt(tr *traffic, family service.Family, what interruption, direction string, quiet int) {
	p.Helper()
	d, began := p.domains[family], time.Now()
	i := newInterrupter(p, family, what)
	absent := map[service.Key]bool{}
	if what.rejects && direction == "coming" {
		d.renderer.set(victim, func(objects []dataplane.Object) []dataplane.Object { return addFlag(d.renderer, family, objects) })
		absent[victim] = true
	}
	i.disturb(quiet)
	i.await(i.ended)
	p.interrupter.Store(nil)
	if len(absent) > 0 {
		p.checkQuarantined(family, victim.String())
	}
	p.awaitRendered(family, absent)
	p.awaitRendered(1-family, nil)
	healed := time.Now()
	if what.deletesTable {
		tr.allow(&outage{
			What: what.name, From: i.at, To: healed,
			Hits: func(to target, e netnstest.Exchange) bool { return to.family == family && !e.Session },
		})
	}
	d.sockets.set(nil)
	d.renderer.set(victim, nil)
	p.checkReceipts(d, began, what)
	check(p, i.err)
	if len(absent) == 0 {
		p.checkBlameless(began)
		p.checkQuarantined(family)
	}
	if absent[victim] {
		p.cure(d, family)
	}
	p.Logf("%s, %s: %s: all is in place %.0f ms after the crowd", d.name, direction, what.name, ms(healed.Sub(began)))
}

// cure makes the victim render again, and waits until the kernel has it. Until then, a retry would
// be rejected once more.
func (p *proxyNode) cure(d *domain, family service.Family) {
	p.Helper()
	cured := time.Now()
	slice := quietSlice(victimNumber, family)
	slice.Endpoints = slice.Endpoints[1:]
	p.cache.SetSlice(slice)
	p.events.await(p.T, "release", cured, func(e aggregator.Event) bool {
		freed, ok := e.(aggregator.Freed)
		return ok && freed.Domain == d.name && freed.Key == victim
	})
}

// checkReceipts fails unless a domain has had the expected receipt, and no other failure.
func (p *proxyNode) checkReceipts(d *domain, since time.Time, want interruption) {
	p.Helper()
	found := want.outcome == dataplane.Landed
	for _, h := range p.events.since(since) {
		w, ok := h.event.(aggregator.BatchWritten)
		if !ok || w.Domain != d.name || w.Receipt.Outcome == dataplane.Landed {
			continue
		}
		if w.Receipt.Outcome != want.outcome || !errors.Is(w.Receipt.Err, want.reason) {
			p.Errorf("%s: %s: got %v, want %v because of %v", d.name, want.name, w.Receipt, want.outcome, want.reason)
		}
		found = true
	}
	if !found {
		p.Errorf("%s: %s: no receipt reports it", d.name, want.name)
	}
}

// TestBatch_ProxyStopsMidway: a stopping proxy completes the batch that it writes, and its successor writes the rest.
func TestBatch_ProxyStopsMidway(t *testing.T) {
	testenv.OnlyInAll(t)
	t.Parallel()
	p := newProxyNode(t)
	p.transactionBytes = crowdTransactionBytes
	p.start()
	tr := startTraffic(t, p.network.client)
	for _, family := range service.Families {
		i := newInterrupter(p, family, interruption{strike: func(i *interrupter) { i.p.halt() }})
		i.disturb(quietServices + crowd)
		p.stop()
		p.interrupter.Store(nil)
		if landed := i.parts.Load(); landed < 3 {
			t.Errorf("%s: %d transactions have landed, want more than those before the stop", family, landed)
		}
		if id, missing := p.domains[family].writer.missing(contentsOf(p.read(family))); missing {
			t.Errorf("%s: the batch under way has not been ended: %s %x is missing", family, id.Container, id.Name)
		}
		p.start()
		p.awaitAllRendered()
		p.resize(quietServices)
		p.awaitAllRendered() // what comes again before it has gone is not written
		tr.awaitAll(t, 2)
	}
	tr.end(t)
	p.stop()
}

// TestBatch_ProxyDiesMidway: after a proxy that dies in the middle of a batch, every Service is served in its old or
// its new form, and the next proxy writes the rest.
func TestBatch_ProxyDiesMidway(t *testing.T) {
	testenv.OnlyInAll(t)
	t.Parallel()
	p := newProxyNode(t)
	p.transactionBytes = crowdTransactionBytes
	p.start()
	tr := startTraffic(t, p.network.client)
	for _, family := range service.Families {
		died, buried := make(chan struct{}), make(chan struct{})
		old := p.process
		i := newInterrupter(p, family, interruption{strike: func(*interrupter) {
			// Nothing more of it reaches the kernel.
			old.domains[family].sockets.set(func() error { close(died); <-buried; return errTime })
			old.domains[1-family].sockets.set(func() error { <-buried; return errTime })
			old.halt()
		}})
		p.setPods(pair, pair.second()...)
		i.disturb(quietServices + crowd)
		p.interrupter.Store(nil)
		<-died
		began := time.Now()
		p.start()
		p.awaitAllRendered()
		t.Logf("%s: the successor had everything in place after %.0f ms", family, ms(time.Since(began)))
		p.resize(quietServices)
		p.awaitAllRendered() // what comes again before it has gone is not written
		tr.awaitAll(t, 2)
		close(buried)
		// Its successor has changed what the dead process says of its last batch.
		check(t, <-old.ended)
		for _, d := range old.domains {
			d.close(t)
		}
	}
	tr.end(t)
	p.stop()
}
