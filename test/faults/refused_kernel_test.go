package faults

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// neighbourMax bounds the time in which a change of another Service lands while one
// is refused. It is generous; usual are a few milliseconds.
const neighbourMax = time.Second

// TestARefusedServiceIsQuarantined: what the kernel refuses is held back with the
// kernel's words, in the family in which it is refused. What the Service had goes
// on, its neighbours go on changing, and once it is mended it is let in again.
func TestARefusedServiceIsQuarantined(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.start()
	tr := startTraffic(t, p.network.client)
	for _, family := range service.Families {
		for _, v := range venoms {
			tr.awaitAll(t, 2)
			p.refuse(tr, family, v)
		}
	}
	tr.end(t)
	p.checkAdopted()
	p.stop()
}

// TestAnswersThatDoNotFit: the kernel has more to say of a refused transaction than
// the socket has room for, and drops the rest (ENOBUFS on receiving). The one to
// blame is found all the same, and nothing is mistaken for an answer to what is
// asked later.
func TestAnswersThatDoNotFit(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.start()
	for _, d := range p.domains {
		check(t, d.sockets.narrow(p.network.node))
	}
	tr := startTraffic(t, p.network.client)
	for _, family := range service.Families {
		tr.awaitAll(t, 2)
		p.refuse(tr, family, venom{"more refusals than there is room for", unix.ENOENT, addExpressions})
	}
	tr.end(t)
	p.checkAdopted()
	p.stop()
}

// refuse poisons the Service trio at a change of its endpoints.
func (p *plant) refuse(tr *traffic, family service.Family, v venom) {
	p.Helper()
	d, key, began := p.domains[family], trio.key(), time.Now()
	d.poison.set(key, func(objects []dataplane.Object) []dataplane.Object { return v.spoil(d.poison, family, objects) })
	p.setPods(trio, trio.second()...)
	heard := p.witness.await(p.T, v.name+": quarantine", began, func(e aggregator.Event) bool {
		q, ok := e.(aggregator.Quarantined)
		return ok && q.Domain == d.name && q.Key == key
	})
	reason := heard.event.(aggregator.Quarantined).Reason
	if !strings.Contains(reason, v.errno.Error()) {
		p.Errorf("%s %s: quarantined for %q, want the kernel's words %q", family, v.name, reason, v.errno)
	}
	p.checkQuarantined(family, key.String())
	// The Service itself: as it was here, changed in the other family.
	newcomer := trio.podName(trio.endpoints)
	other := service.Families[1-family]
	tr.awaitPod(p.T, pod{other, newcomer}, began)
	tr.awaitPod(p.T, pod{family, trio.podName(0)}, heard.at)
	// A neighbour.
	changed := time.Now()
	p.setPods(pair, pair.second()...)
	landed := p.witness.await(p.T, "the neighbour's change", changed, applied(d.name, pair.key())).at
	answered := tr.awaitPod(p.T, pod{family, pair.podName(pair.endpoints)}, changed)
	if took := answered.Sub(changed); took > neighbourMax {
		p.Errorf("%s %s: a neighbour's change took %v, want %v at most", family, v.name, took, neighbourMax)
	}
	if at := tr.lastAnswer(pod{family, newcomer}); at.After(began) {
		p.Errorf("%s %s: %s answers, though the change was refused", family, v.name, newcomer)
	}
	// Mended.
	mended := time.Now()
	d.poison.set(key, nil)
	p.setPods(trio, trio.first()...)
	freed := p.witness.await(p.T, "release", mended, func(e aggregator.Event) bool {
		f, ok := e.(aggregator.Freed)
		return ok && f.Domain == d.name && f.Key == key
	}).at
	p.checkQuarantined(family)
	p.setPods(pair, pair.first()...)
	for _, domain := range p.domains {
		p.witness.await(p.T, "things as they were", mended, applied(domain.name, pair.key()))
		p.witness.await(p.T, "things as they were", mended, applied(domain.name, key))
	}
	p.Logf("%s %s: quarantined after %.1f ms, a neighbour's change landed after %.1f ms and answered after %.1f ms, released after %.0f ms",
		family, v.name, ms(heard.at.Sub(began)), ms(landed.Sub(changed)), ms(answered.Sub(changed)), ms(freed.Sub(mended)))
}
