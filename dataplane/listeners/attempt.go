// SPDX-License-Identifier: Apache-2.0

package listeners

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/relay"
)

// Attempt is one write of listeners. It ignores the Before of a change, because the set knows its
// listeners.
//
// A listener that cannot be opened is rejected alone: all other changes land, and the suspects are
// proven. If the host is at fault (no descriptors, no loopback address), there are no suspects.
type Attempt[C any] struct {
	// Written counts what was done.
	Written dataplane.Written

	set     *Set[C]
	began   time.Time
	changes []dataplane.Change
	// contents are the parsed bodies, opened the new listeners.
	contents map[dataplane.ID]C
	opened   map[dataplane.ID]bool
	rejected RejectedError
}

// Begin returns an attempt, which has changed nothing yet. All changes must be of listeners.
func (s *Set[C]) Begin(changes []dataplane.Change) *Attempt[C] {
	return &Attempt[C]{set: s, began: time.Now(), changes: changes, contents: make(map[dataplane.ID]C), opened: make(map[dataplane.ID]bool)}
}

// Write makes one attempt. All changes must be of listeners.
func (s *Set[C]) Write(ctx context.Context, batch *dataplane.Batch) dataplane.Receipt {
	a := s.Begin(batch.Changes)
	err := a.Open(ctx)
	a.Change()
	a.Remove()
	return a.Receipt(err, ctx.Err() != nil, a.certain)
}

// certain returns the state of each listener, which is always known.
func (a *Attempt[C]) certain() map[dataplane.ID]*dataplane.Object {
	certain := make(map[dataplane.ID]*dataplane.Object, len(a.changes))
	for i := range a.changes {
		certain[a.changes[i].ID] = a.set.Object(a.changes[i].ID)
	}
	return certain
}

// Open parses all bodies, and opens and starts missing listeners. The error is the host's fault. Open
// then still tries the remaining listeners, because their order must not decide which Services are served.
func (a *Attempt[C]) Open(ctx context.Context) (hosts error) {
	for i := range a.changes {
		c := &a.changes[i]
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case a.set.relay.Closed():
			return relay.ErrClosed
		}
		p, err := a.openOne(c)
		if err == nil {
			continue
		}
		failed := &OpenError{Owner: c.Owner, Place: p, Err: err}
		if failed.hostsFault() {
			hosts = failed // the last one stands for all
			continue
		}
		a.nameHolder(failed)
		a.Reject(failed)
	}
	return hosts
}

// openOne opens one listener. The place is zero if the object cannot be parsed.
func (a *Attempt[C]) openOne(c *dataplane.Change) (p relay.Place, err error) {
	if p, err = Place(c.ID); err != nil {
		return relay.Place{}, err
	}
	if c.After == nil {
		return p, nil
	}
	if a.contents[c.ID], err = a.set.parse(p, c.After.Body); err != nil {
		delete(a.contents, c.ID)
		return relay.Place{}, err
	}
	if a.set.Object(c.ID) != nil {
		return p, nil
	}
	a.Written.Calls++
	l, err := a.set.open(p, a.contents[c.ID])
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err // without the address, which OpenError names
		}
		return p, err
	}
	l.Start(a.set.Wake)
	if dead := a.set.held[c.ID]; dead != nil {
		dead.Retire()
	}
	a.set.held[c.ID] = &held[C]{l, c.After.Body}
	a.opened[c.ID] = true
	a.Written.Objects++
	return p, nil
}

// holderMax bounds the searches for the holder of a port in one attempt, because they block the writer.
const holderMax = 3

// nameHolder finds the holder of a port in use.
func (a *Attempt[C]) nameHolder(e *OpenError) {
	if !errors.Is(e.Err, unix.EADDRINUSE) || len(a.rejected.Failures) >= holderMax {
		return
	}
	_ = a.set.relay.Inside(func() error { // on failure, the error tells the user how to find the holder
		e.holder = describeHolder(e.Place)
		return nil
	})
}

// Reject rejects one object. The rest of the batch lands.
func (a *Attempt[C]) Reject(e *OpenError) { a.rejected.Failures = append(a.rejected.Failures, e) }

// Change replaces the contents of listeners that were open before the attempt.
func (a *Attempt[C]) Change() {
	for i := range a.changes {
		c := &a.changes[i]
		l := a.set.held[c.ID]
		content, wanted := a.contents[c.ID]
		if !wanted || l == nil || a.opened[c.ID] || !l.Alive() {
			continue
		}
		if err := l.Change(content); err != nil {
			err = fmt.Errorf("cannot change listener %s: %w", c.ID.Name, err)
			a.Reject(&OpenError{Owner: c.Owner, Err: err})
			continue
		}
		l.body = c.After.Body
		a.Written.Objects++
	}
}

// Remove retires the listeners that are no longer wanted.
func (a *Attempt[C]) Remove() {
	for i := range a.changes {
		c := &a.changes[i]
		if l := a.set.held[c.ID]; c.After == nil && l != nil {
			l.Retire()
			delete(a.set.held, c.ID)
			a.Written.Objects++
		}
	}
}

// Receipt returns the result of the attempt. If there is an error, which is the host's, unknown selects
// between the outcomes Unknown and Busy. Certain returns the known states; it is not called if everything
// landed.
func (a *Attempt[C]) Receipt(err error, unknown bool, certain func() map[dataplane.ID]*dataplane.Object) dataplane.Receipt {
	r := dataplane.Receipt{Outcome: dataplane.Landed, Written: a.Written, Took: time.Since(a.began)}
	switch {
	case err == nil && len(a.rejected.Failures) == 0:
		return r
	case err == nil:
		r.Outcome, r.Suspects, r.Proven, r.Err = dataplane.Rejected, a.rejected.suspects(), true, &a.rejected
	case unknown:
		r.Outcome, r.Err = dataplane.Unknown, err
	default:
		r.Outcome, r.Err = dataplane.Busy, err
	}
	r.Certain = certain()
	return r
}
