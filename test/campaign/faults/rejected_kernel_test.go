// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestRejectedService_Quarantined: a Service that the kernel rejects is quarantined with the kernel's reason, in the
// family of the rejection. Its last rules stay, other Services continue to change, and it is released when it is fixed.
func TestRejectedService_Quarantined(t *testing.T) {
	t.Parallel()
	p := newProxyNode(t)
	p.start()
	tr := startTraffic(t, p.network.client)
	for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
		for _, v := range defects {
			tr.awaitAll(t, 2)
			p.reject(tr, family, v)
		}
	}
	tr.end(t)
	p.checkAdopted()
	p.stop()
}

// reject spoils the Service trio at a change of its endpoints.
func (p *proxyNode) reject(tr *traffic, family service.Family, v defect) {
	p.Helper()
	d, key, began := p.domains[family], trio.key(), time.Now()
	d.renderer.set(key, func(objects []dataplane.Object) []dataplane.Object { return v.spoil(d.renderer, family, objects) })
	changed := tr.loseAnswers(trio)
	p.setPods(trio, trio.second()...)
	heard := p.events.await(p.T, v.name+": quarantine", began, func(e aggregator.Event) bool {
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
	next := time.Now()
	p.setPods(pair, pair.second()...)
	landed := p.events.await(p.T, "the neighbour's change", next, applied(d.name, pair.key())).at
	answered := tr.awaitPod(p.T, pod{family, pair.podName(pair.endpoints)}, next)
	if at := tr.lastAnswer(pod{family, newcomer}); at.After(began) {
		p.Errorf("%s %s: %s answers, though the change was rejected", family, v.name, newcomer)
	}
	// Fixed. The event of a change comes a moment after the change, and must not count as that of the next one.
	p.events.await(p.T, "the change in the other family", began, applied(p.domains[1-family].name, key))
	changed()
	fixed := time.Now()
	d.renderer.set(key, nil)
	changed = tr.loseAnswers(trio)
	p.setPods(trio, trio.first()...)
	freed := p.events.await(p.T, "release", fixed, func(e aggregator.Event) bool {
		f, ok := e.(aggregator.Freed)
		return ok && f.Domain == d.name && f.Key == key
	}).at
	p.checkQuarantined(family)
	p.setPods(pair, pair.first()...)
	for _, domain := range p.domains {
		p.events.await(p.T, "things as they were", fixed, applied(domain.name, pair.key()))
		p.events.await(p.T, "things as they were", fixed, applied(domain.name, key))
	}
	changed()
	p.Logf("%s %s: quarantined after %.1f ms, a neighbour's change landed after %.1f ms and answered after %.1f ms, released after %.0f ms",
		family, v.name, ms(heard.at.Sub(began)), ms(landed.Sub(next)), ms(answered.Sub(next)), ms(freed.Sub(fixed)))
}

// TestRejectedService_ProcessRestarts: while a Service is rejected, processes restart with changes that none of them
// has seen. No connection is lost, neither to other Services nor, on its last good rules, to the rejected one.
func TestRejectedService_ProcessRestarts(t *testing.T) {
	testenv.OnlyInAll(t)
	t.Parallel()
	p := newProxyNode(t)
	p.start()
	tr := startTraffic(t, p.network.client)
	key := trio.key()
	for i, v := range defects {
		family := service.Families[i%2]
		tr.awaitAll(t, 2)
		p.Logf("%s %s", family, v.name)
		p.spoiled[family] = map[service.Key]defect{key: v}
		for range 2 {
			p.stop()
			began := time.Now()
			p.start()
			p.events.await(t, "quarantine", began, func(e aggregator.Event) bool {
				q, ok := e.(aggregator.Quarantined)
				return ok && q.Domain == p.domains[family].name && q.Key == key
			})
			p.checkQuarantined(family, key.String())
			changed := time.Now()
			p.setPods(pair, pair.second()...)
			tr.awaitPod(t, pod{family, pair.podName(pair.endpoints)}, changed)
			p.setPods(pair, pair.first()...)
			p.events.await(t, "things as they were", changed, applied(p.domains[family].name, pair.key()))
			tr.awaitAll(t, 2)
		}
		p.spoiled[family] = nil
		p.stop()
		p.start()
		p.checkQuarantined(family)
	}
	tr.end(t)
	p.checkAdopted()
	p.stop()
}

// busyTries is how many transactions in a row the kernel does not take at least. Pauses between attempts
// double, from 100 ms.
const busyTries = 2

// TestBusyKernel_WriteRetried: if the kernel has no memory for a transaction, the change lands a moment later. No
// Service is blamed, and no connection is lost.
func TestBusyKernel_WriteRetried(t *testing.T) {
	t.Parallel()
	p := newProxyNode(t)
	p.start()
	tr := startTraffic(t, p.network.client)
	for _, family := range service.Families {
		for _, errno := range []syscall.Errno{unix.ENOBUFS, unix.EAGAIN} {
			tr.awaitAll(t, 2)
			p.beBusy(tr, family, errno)
		}
	}
	tr.end(t)
	p.checkAdopted()
	p.stop()
}

// beBusy changes the Service pair while the kernel takes nothing from one family. It does so until the other family has
// the change, which would never come if it waited for the first one.
func (p *proxyNode) beBusy(tr *traffic, family service.Family, errno syscall.Errno) {
	p.Helper()
	d, other, began := p.domains[family], p.domains[1-family], time.Now()
	var sent, refused atomic.Int32
	d.sockets.set(func() error {
		if sent.Add(1) <= busyTries || p.events.count(began, applied(other.name, pair.key())) == 0 {
			refused.Add(1)
			return errno
		}
		return nil
	})
	p.setPods(pair, pair.second()...)
	p.events.await(p.T, "the other family's write", began, applied(other.name, pair.key()))
	landed := p.events.await(p.T, "a landed write", began, applied(d.name, pair.key())).at
	tr.awaitPod(p.T, pod{family, pair.podName(pair.endpoints)}, began)
	d.sockets.set(nil)
	if n, want := p.events.count(began, wrote(d.name, dataplane.Busy)), int(refused.Load()); n != want {
		p.Errorf("%s: %d busy receipts, want %d: %s", d.name, n, want, p.events.list(began))
	}
	p.checkBlameless(began)
	back := time.Now()
	p.setPods(pair, pair.first()...)
	p.events.await(p.T, "things as they were", back, applied(d.name, pair.key()))
	p.events.await(p.T, "things as they were", back, applied(other.name, pair.key()))
	p.Logf("%s %v, %d times: landed after %.0f ms", d.name, errno, refused.Load(), ms(landed.Sub(began)))
}
