// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// crowd is the number of quiet Services that come, or go, at once. They take several transactions.
const (
	crowd                 = 150
	crowdTransactionBytes = 8 << 10
)

// interruption is what happens to a domain after the second transaction of a batch.
type interruption struct {
	name string
	// strike happens then; nil if a Service is spoiled instead.
	strike func(*interrupter)
	// outcome and reason are those of the receipt; Landed if the batch must land all the same.
	outcome dataplane.Outcome
	reason  error
	// rejects means that the kernel rejects one Service in the third transaction or later.
	rejects bool
	// deletesTable means that no frontend of the family works until the repair.
	deletesTable bool
}

var errTime = errors.New("the time is up")

var interruptions = []interruption{
	{name: "its time is up", strike: (*interrupter).expire, outcome: dataplane.Unknown, reason: errTime},
	{name: "the kernel is busy", strike: (*interrupter).block, outcome: dataplane.Busy, reason: unix.ENOBUFS},
	{name: "the kernel rejects a Service", outcome: dataplane.Unsupported, reason: unix.EOPNOTSUPP, rejects: true},
	{name: "another program adds a table", strike: (*interrupter).addTable, outcome: dataplane.Landed},
	{
		name: "another program adds a table, and the time is up", outcome: dataplane.Unknown, reason: errTime,
		strike: func(i *interrupter) { i.addTable(); i.expire() },
	},
	{name: "another program deletes the table", strike: (*interrupter).deleteTable, outcome: dataplane.Unknown, reason: unix.ENOENT, deletesTable: true},
}

// interrupter strikes once, after the second transaction of a batch of one family.
type interrupter struct {
	p      *proxyNode
	family service.Family
	what   interruption
	// domain is the one that is struck, status that of the proxy that serves it.
	domain string
	status func() []aggregator.Status
	// turn is held during a write of either family. A generation of the kernel's tables counts the
	// transactions of both: if the other family wrote during an interrupted batch, its receipt would
	// be less certain.
	turn sync.Mutex
	// gathered is set once the crowd has gathered, begun when a write waits for that. parts counts the
	// transactions of the last batch.
	gathered bool
	begun    atomic.Bool
	parts    atomic.Int32
	over     atomic.Bool
	cancel   context.CancelCauseFunc
	// struck is closed after the strike, which began at at and failed with err; ended is closed when
	// the write that was struck has returned.
	struck, ended chan struct{}
	at            time.Time
	err           error
}

func newInterrupter(p *proxyNode, family service.Family, what interruption) *interrupter {
	return &interrupter{
		p: p, family: family, what: what, struck: make(chan struct{}), ended: make(chan struct{}),
		domain: p.domains[family].name, status: p.proxy.Status,
	}
}

// landed is called when a transaction has landed, with the number of changes that have, of all.
func (i *interrupter) landed(changes, all int) {
	if i.parts.Add(1) < 2 || changes == all || i.over.Swap(true) {
		return
	}
	i.at = time.Now()
	if i.what.strike != nil {
		i.what.strike(i)
	}
	close(i.struck)
}

// write carries out a write of either family. The first one of the struck family waits until the
// whole crowd waits for the next one, which therefore takes several transactions.
func (i *interrupter) write(ctx context.Context, family service.Family, write func(context.Context) dataplane.Receipt) dataplane.Receipt {
	i.turn.Lock()
	defer i.turn.Unlock()
	if family != i.family || i.over.Load() {
		return write(ctx)
	}
	if !i.gathered {
		i.gather()
	}
	i.parts.Store(0)
	ctx, i.cancel = context.WithCancelCause(ctx)
	defer i.cancel(nil)
	receipt := write(ctx)
	if i.over.Load() {
		close(i.ended)
	}
	return receipt
}

// gather waits until the crowd waits for the next write.
func (i *interrupter) gather() {
	i.gathered = true
	i.begun.Store(true)
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		for _, s := range i.status() {
			if s.Domain == i.domain && s.Waiting >= crowd {
				return
			}
		}
		if time.Since(began) > testenv.Patience {
			i.err = errors.New("the crowd did not gather")
			return
		}
	}
}

func (i *interrupter) expire() { i.cancel(errTime) }

// block makes the kernel have no memory for the next transaction.
func (i *interrupter) block() {
	var sent atomic.Int32
	i.p.domains[i.family].sockets.set(func() error {
		if sent.Add(1) == 1 {
			return unix.ENOBUFS
		}
		return nil
	})
}

func (i *interrupter) addTable() {
	i.nft(fmt.Sprintf("add table inet foreign-%d; add chain inet foreign-%d c", i.family, i.family))
}

func (i *interrupter) deleteTable() { i.nft("delete table " + table(i.family)) }

// nft writes as another program. It is done before the interrupted write goes on, so the receipt
// has to account for it.
func (i *interrupter) nft(commands string) {
	i.p.strikes.Add(1)
	defer i.p.strikes.Add(1)
	if _, err := i.p.run(commands); err != nil {
		i.err = err
	}
}

// disturb makes a crowd come or go, which leaves so many quiet Services, and waits for the strike.
// Before, it changes one Service, whose write lets the crowd gather.
func (i *interrupter) disturb(quiet int) {
	i.p.Helper()
	i.p.interrupter.Store(i)
	slice := quietSlice(decoy, i.family)
	if quiet > quietServices {
		slice.Endpoints = slice.Endpoints[1:]
	}
	i.p.cache.SetSlice(slice)
	testenv.Eventually(i.p.T, "the write of one Service begins", func() bool { return i.begun.Load() })
	i.p.resize(quiet)
	i.await(i.struck)
}

// decoy is a quiet Service with endpoints.
const decoy = 4

func (i *interrupter) await(done chan struct{}) {
	i.p.Helper()
	select {
	case <-done:
	case <-time.After(testenv.Patience):
		i.p.Fatal("no batch of several transactions came")
	}
}
