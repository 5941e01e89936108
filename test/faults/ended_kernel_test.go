package faults

import (
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// TestStoppingAmidABatch: a proxy that is told to stop ends the batch under way,
// and its successor completes the rest.
func TestStoppingAmidABatch(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.transactionBytes = crowdTransactionBytes
	p.start()
	tr := startTraffic(t, p.network.client)
	for _, family := range service.Families {
		i := newInterrupter(p, family, interruption{strike: func(i *interrupter) { i.p.halt() }})
		p.interrupter.Store(i)
		p.resize(quietServices + crowd)
		i.await()
		p.stop()
		p.interrupter.Store(nil)
		if landed := i.parts.Load(); landed < 3 {
			t.Errorf("%s: %d transactions have landed, want more than those before the stop", family, landed)
		}
		if id, missing := p.domains[family].notary.missing(pictureOf(p.read(family))); missing {
			t.Errorf("%s: the batch under way has not been ended: %s %x is missing", family, id.Container, id.Name)
		}
		p.start()
		for _, f := range service.Families {
			p.awaitRendered(f, nil)
		}
		p.resize(quietServices)
		tr.awaitAll(t, 2)
	}
	tr.end(t)
	p.stop()
}

// TestDyingAmidABatch: a proxy that ends after two transactions of many, without
// having said anything, leaves every Service served, as it was or as it is wanted;
// its successor completes the rest.
func TestDyingAmidABatch(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.transactionBytes = crowdTransactionBytes
	p.start()
	tr := startTraffic(t, p.network.client)
	for _, family := range service.Families {
		died, buried := make(chan struct{}), make(chan struct{})
		old := p.process
		i := newInterrupter(p, family, interruption{strike: func(*interrupter) {
			// Nothing of it reaches the kernel any more.
			old.domains[family].sockets.set(func() error { close(died); <-buried; return errTime })
			old.halt()
		}})
		p.interrupter.Store(i)
		p.setPods(pair, pair.second()...)
		p.resize(quietServices + crowd)
		i.await()
		p.interrupter.Store(nil)
		<-died
		began := time.Now()
		p.start()
		for _, f := range service.Families {
			p.awaitRendered(f, nil)
		}
		t.Logf("%s: the successor had everything in place after %.0f ms", family, ms(time.Since(began)))
		p.resize(quietServices)
		tr.awaitAll(t, 2)
		close(buried)
		// What the dead one says of its last batch, its successor has overtaken.
		check(t, <-old.ended)
		for _, d := range old.domains {
			d.close(t)
		}
	}
	tr.end(t)
	p.stop()
}
