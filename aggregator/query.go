// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/service"
)

// ErrEnded is the answer of an aggregator that no longer runs.
var ErrEnded = errors.New("the domain was removed by a configuration reload")

// pageMax bounds the objects that one turn lists: about 50 µs. A longer answer takes several
// turns.
const pageMax = 100

// Account returns what the ledger records of a key, with up to limit objects.
func (a *Aggregator) Account(ctx context.Context, key service.Key, limit int) (ledger.Account, error) {
	account, err := a.page(ctx, key, 0, limit)
	for again := 0; err == nil && account.Omitted > 0 && len(account.Objects) < limit; {
		var next ledger.Account
		if next, err = a.page(ctx, key, len(account.Objects), limit); err != nil || account.Append(&next) {
			continue
		}
		if again++; again > 10 {
			return account, errors.New("the Service changed repeatedly while it was read; the listed objects may be outdated")
		}
		account, err = a.page(ctx, key, 0, limit) // it has changed: from the beginning
	}
	// A fragment in the mailbox is newer than those in the ledger.
	account.Queued = a.inbox.Has(key)
	return account, err
}

// page asks for some objects of a key.
func (a *Aggregator) page(ctx context.Context, key service.Key, from, limit int) (account ledger.Account, err error) {
	err = a.ask(ctx, func() {
		account = a.machine.ledger.Account(key, from, min(pageMax, limit-from))
		account.Pending = a.machine.unapplied(key)
	})
	return account, err
}

// Pending returns the keys that are not applied, the ones that have waited longest first. The answer takes one turn, in
// proportion to the keys: 1,000 take less than 100 µs.
func (a *Aggregator) Pending(ctx context.Context) (keys []service.Key, err error) {
	queued := a.inbox.Keys() // before the others: what is received meanwhile is among those
	err = a.ask(ctx, func() { keys = a.machine.allUnapplied() })
	return append(keys, queued...), err
}

const (
	// searchPortion is how many objects one turn of a search visits: 25 to 60 µs.
	searchPortion = 100
	// searchShare is the share of the time that a search takes at most.
	searchShare = 0.02
)

// ErrUnread is the answer of an aggregator that has not read the kernel's rules yet.
var ErrUnread = errors.New("the proxy has not read the rules of this node yet")

// ErrUnsure is the answer if it is not known whether the kernel has some object.
var ErrUnsure = errors.New("the last write did not end properly, and the proxy has not read the rules since then")

// Search finds out which Services send new connections to endpoints; see ledger.Search. It takes many turns. If
// there is no error, what it finds is complete for the moment when it returns.
func (a *Aggregator) Search(ctx context.Context, sought []*ledger.Sought) error {
	var s *ledger.Search
	err := a.ask(ctx, func() {
		if a.machine.start.adopted {
			s = a.machine.ledger.Search(sought, searchPortion)
		}
	})
	switch {
	case err != nil:
		return err
	case s == nil:
		return ErrUnread
	}
	err = a.visit(ctx, s)
	unsure := false
	if ended := a.ask(context.WithoutCancel(ctx), func() { unsure = s.End() }); ended != nil {
		s.End() // an aggregator that has ended leaves the ledger to this goroutine
		return ended
	}
	if err == nil && unsure {
		return ErrUnsure
	}
	return err
}

// visit takes the turns of a search.
func (a *Aggregator) visit(ctx context.Context, s *ledger.Search) error {
	for {
		done, took := false, time.Duration(0)
		err := a.ask(ctx, func() {
			began := time.Now()
			done = s.Step()
			took = time.Since(began)
		})
		if err != nil || done {
			return err
		}
		if !sleep.For(ctx, time.Duration(float64(took)*(1/searchShare-1))) {
			return ctx.Err()
		}
	}
}

// ask runs a question on the goroutine that owns the ledger, between two of its turns. The
// question must be short; what it sets may be read if the error is nil.
func (a *Aggregator) ask(ctx context.Context, question func()) error {
	done := make(chan struct{})
	select {
	case a.questions <- func() { question(); close(done) }:
	case <-a.ended:
		return ErrEnded
	case <-ctx.Done():
		return ctx.Err()
	}
	<-done // Run has taken it, and answers immediately
	return nil
}

// first returns up to limit keys that wait, the oldest first. Those that a bisection tries are older than all others.
func (p *pending) first(limit int) []service.Key {
	keys := p.sought.first(limit)
	keys = append(keys, p.waits.first(limit-len(keys))...)
	for e := p.costly.order.Front(); e != nil && len(keys) < limit; e = e.Next() {
		if key := e.Value.(wait).key; !p.sought.has(key) && !p.waits.has(key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// first returns up to limit keys, the oldest first.
func (w *waits) first(limit int) []service.Key {
	keys := make([]service.Key, 0, min(limit, w.order.Len()))
	for e := w.order.Front(); e != nil && len(keys) < limit; e = e.Next() {
		keys = append(keys, e.Value.(wait).key)
	}
	return keys
}
