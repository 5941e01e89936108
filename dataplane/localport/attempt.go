package localport

import (
	"context"
	"errors"
	"net"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
)

// attempt is one Write: first everything that can be refused, opening sockets,
// then what cannot. What a change says to have been before does not count, since
// the writer knows what it holds.
type attempt struct {
	w       *Writer
	changes []dataplane.Change
	// opened are the new listeners, which do not serve yet.
	opened  map[dataplane.ID]*listener
	written dataplane.Written
}

func (a *attempt) run(ctx context.Context) dataplane.Receipt {
	failure := a.open(ctx)
	var refused *refusedError
	if errors.As(failure, &refused) {
		a.rollBack()
		return dataplane.Receipt{Outcome: dataplane.Rejected, Suspects: refused.suspects(), Err: failure,
			Certain: a.certain(), Written: a.written}
	}
	a.carryOut()
	receipt := dataplane.Receipt{Outcome: dataplane.Landed, Written: a.written, Err: failure}
	if failure != nil {
		receipt.Certain = a.certain()
		receipt.Outcome = dataplane.Busy
		if ctx.Err() != nil {
			receipt.Outcome = dataplane.Unknown
		}
	}
	return receipt
}

// open opens what is wanted and not there. It stops when it is told to or when
// the host is at fault; listeners that are refused for themselves are gathered.
func (a *attempt) open(ctx context.Context) error {
	refused := &refusedError{}
	for i := range a.changes {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case a.w.household.crew.ctx.Err() != nil:
			return errClosed
		}
		err := a.openOne(&a.changes[i])
		switch {
		case err == nil:
		case err.nodesFault():
			return err
		default:
			if len(refused.refusals) < holderMax {
				a.nameHolder(err)
			}
			refused.refusals = append(refused.refusals, err)
		}
	}
	if len(refused.refusals) > 0 {
		return refused
	}
	return nil
}

func (a *attempt) openOne(c *dataplane.Change) *openError {
	if c.After == nil {
		return nil
	}
	p, target, err := a.w.parse(c.After)
	if err != nil {
		return &openError{owner: c.Owner, place: p, err: err}
	}
	if a.w.object(c.ID) != nil {
		return nil
	}
	a.written.Calls++
	l, err := openListener(a.w.household, p, target)
	if err != nil {
		return &openError{owner: c.Owner, place: p, err: withoutAddress(err)}
	}
	a.opened[c.ID] = l
	return nil
}

// nameHolder finds out who has a port that is taken.
func (a *attempt) nameHolder(e *openError) {
	if !errors.Is(e.err, unix.EADDRINUSE) {
		return
	}
	_ = a.w.household.inside(func() error { // without, the error says how to find it
		e.holder = describeHolder(e.place, "/proc")
		return nil
	})
}

// withoutAddress gives an error of package net without the address, which is
// said anyway.
func withoutAddress(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// rollBack closes what was opened.
func (a *attempt) rollBack() {
	for _, l := range a.opened {
		l.close()
	}
}

// carryOut does what cannot fail: it lets new listeners serve, retargets and
// closes others. New ones are missing after a failure of the host.
func (a *attempt) carryOut() {
	for i := range a.changes {
		c := &a.changes[i]
		held, fresh := a.w.held[c.ID], a.opened[c.ID]
		switch {
		case c.After == nil && held != nil:
			held.close()
			delete(a.w.held, c.ID)
			a.written.Calls++
		case fresh != nil:
			fresh.start(a.w.household, a.w.tellDeath)
			a.w.held[c.ID] = fresh
		case c.After != nil && a.w.object(c.ID) != nil:
			a.retarget(held, c.After)
		case c.After != nil:
			continue // not opened
		}
		a.written.Objects++
	}
}

// retarget sends new clients elsewhere.
func (a *attempt) retarget(l *listener, to *dataplane.Object) {
	if target, err := parseBody(to.Body); err == nil { // it was read before
		l.target.Store(&target)
	}
}

// certain gives what is there of all that the batch is about; nothing is ever
// unknown here.
func (a *attempt) certain() map[dataplane.ID]*dataplane.Object {
	certain := make(map[dataplane.ID]*dataplane.Object, len(a.changes))
	for i := range a.changes {
		certain[a.changes[i].ID] = a.w.object(a.changes[i].ID)
	}
	return certain
}
