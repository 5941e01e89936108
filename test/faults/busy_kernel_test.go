package faults

import (
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// busyTries is how many transactions in a row the kernel does not take. The pauses
// between the attempts double from 100 ms on.
const busyTries = 2

// TestABusyKernelIsTriedAgain: when the kernel has no memory for a transaction,
// the change waits and lands a moment later; nobody is to blame, and nobody's
// connections notice.
func TestABusyKernelIsTriedAgain(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
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

// beBusy changes the Service pair while the kernel takes nothing from one family.
func (p *plant) beBusy(tr *traffic, family service.Family, errno syscall.Errno) {
	p.Helper()
	d, began := p.domains[family], time.Now()
	var sent atomic.Int32
	d.sockets.set(func() error {
		if sent.Add(1) <= busyTries {
			return errno
		}
		return nil
	})
	p.setPods(pair, pair.second()...)
	landed := p.witness.await(p.T, "a landed write", began, applied(d.name, pair.key())).at
	tr.awaitPod(p.T, pod{family, pair.podName(pair.endpoints)}, began)
	d.sockets.set(nil)
	if n := p.witness.count(began, wrote(d.name, dataplane.Busy)); n != busyTries {
		p.Errorf("%s: %d busy receipts, want %d: %s", d.name, n, busyTries, p.witness.story(began))
	}
	// The other family never waited.
	other := p.domains[1-family]
	soon := p.witness.await(p.T, "the other family's write", began, applied(other.name, pair.key())).at
	if !soon.Before(landed) {
		p.Errorf("%s waited for %s", other.name, d.name)
	}
	p.checkBlameless(began)
	back := time.Now()
	p.setPods(pair, pair.first()...)
	p.witness.await(p.T, "things as they were", back, applied(d.name, pair.key()))
	p.witness.await(p.T, "things as they were", back, applied(other.name, pair.key()))
	p.Logf("%s %v, %d times: landed after %.0f ms", d.name, errno, busyTries, ms(landed.Sub(began)))
}
