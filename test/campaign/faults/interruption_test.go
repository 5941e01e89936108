package faults

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
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
	// gathered is set once the crowd has gathered. parts counts the transactions of the last batch.
	gathered bool
	parts    atomic.Int32
	over     atomic.Bool
	cancel   context.CancelCauseFunc
	// struck is closed after the strike, which began at at and failed with err.
	struck chan struct{}
	at     time.Time
	err    error
}

func newInterrupter(p *proxyNode, family service.Family, what interruption) *interrupter {
	return &interrupter{
		p: p, family: family, what: what, struck: make(chan struct{}),
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

// A write waits until no change has come for gatherTime and a good part of the crowd waits, so that
// the crowd gathers for the next write. It waits no longer than until no change has come for
// gatherMax: then this write has the crowd.
const (
	gatherTime = 150 * time.Millisecond
	gatherMax  = time.Second
	gatherMin  = crowd / 3
)

// gather reports whether the crowd waits for the next write.
func (i *interrupter) gather() bool {
	waiting, newest := 0, time.Now()
	for ; time.Since(newest) < gatherMax; time.Sleep(gatherTime / 10) {
		if waiting >= gatherMin && time.Since(newest) > gatherTime {
			return true
		}
		for _, s := range i.status() {
			if s.Domain == i.domain && s.Waiting != waiting {
				waiting, newest = s.Waiting, time.Now()
			}
		}
	}
	return false
}

// begin is called before each write, and returns a context that a strike can end.
func (i *interrupter) begin(ctx context.Context) context.Context {
	if !i.gathered {
		i.gathered = i.gather()
	}
	if !i.over.Load() {
		i.parts.Store(0)
		ctx, i.cancel = context.WithCancelCause(ctx)
	}
	return ctx
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

// await waits for the strike.
func (i *interrupter) await() {
	i.p.Helper()
	select {
	case <-i.struck:
	case <-time.After(eventMax):
		i.p.Fatal("no batch of several transactions came")
	}
}
