package faults

import (
	"errors"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// victim is the Service of a crowd that is poisoned. It has endpoints, and comes
// late in a batch.
var (
	victim       = quietKey(victimNumber)
	victimNumber = quietServices + crowd*2/3 + 4
)

// TestAnInterruptedBatch: a batch of several transactions ends after two of them.
// Its receipt says exactly what has landed (the notary compares), the rest lands
// soon, and connections to Services that are not in it go on.
func TestAnInterruptedBatch(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.transactionBytes = crowdTransactionBytes
	p.start()
	tr := startTraffic(t, p.network.client)
	for _, family := range service.Families {
		for _, what := range interruptions {
			tr.awaitAll(t, 2)
			p.interrupt(tr, family, what, "coming", quietServices+crowd)
			if what.poisons {
				what.outcome, what.reason = dataplane.Landed, nil
			}
			p.interrupt(tr, family, what, "going", quietServices)
		}
	}
	tr.end(t)
	p.checkAdopted()
	p.stop()
}

// interrupt makes a crowd come or go, so that in the end there are so many quiet
// Services.
func (p *plant) interrupt(tr *traffic, family service.Family, what interruption, direction string, quiet int) {
	p.Helper()
	d, began := p.domains[family], time.Now()
	i := newInterrupter(p, family, what)
	p.interrupter.Store(i)
	absent := map[service.Key]bool{}
	if what.poisons && direction == "coming" {
		d.poison.set(victim, func(objects []dataplane.Object) []dataplane.Object { return addFlag(d.poison, family, objects) })
		absent[victim] = true
	}
	p.resize(quiet)
	i.await()
	p.interrupter.Store(nil)
	if len(absent) > 0 {
		p.checkQuarantined(family, victim.String())
	}
	p.awaitRendered(family, absent)
	p.awaitRendered(1-family, nil)
	healed := time.Now()
	if what.razes {
		tr.excuse(&outage{
			what: what.name, from: i.at, to: healed,
			hits: func(to target) bool { return to.family == family },
		})
	}
	d.sockets.set(nil)
	d.poison.set(victim, nil)
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

// cure lets the victim be rendered anew, and waits until the kernel has it: it is tried
// again at any time, and would be refused once more.
func (p *plant) cure(d *domain, family service.Family) {
	p.Helper()
	cured := time.Now()
	slice := quietSlice(victimNumber, family)
	slice.Endpoints = slice.Endpoints[1:]
	p.cache.SetSlice(slice)
	p.witness.await(p.T, "release", cured, func(e aggregator.Event) bool {
		freed, ok := e.(aggregator.Freed)
		return ok && freed.Domain == d.name && freed.Key == victim
	})
}

// checkReceipts fails unless a domain has had a receipt as it is expected, and no
// other failure.
func (p *plant) checkReceipts(d *domain, since time.Time, want interruption) {
	p.Helper()
	found := want.outcome == dataplane.Landed
	for _, h := range p.witness.since(since) {
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
		p.Errorf("%s: %s: no receipt tells of it", d.name, want.name)
	}
}
