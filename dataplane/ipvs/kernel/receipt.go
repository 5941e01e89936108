// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// receipt returns the receipt of an attempt that was carried out.
func (a *attempt) receipt() dataplane.Receipt {
	r := dataplane.Receipt{Written: a.written.Add(a.kernel.changes.Written())}
	var errs []error
	for _, c := range a.order {
		err := a.failed[c.ID].err
		r.Outcome = worst(r.Outcome, outcomeOf(err))
		r.Suspects = append(r.Suspects, c.Owner)
		errs = append(errs, err)
	}
	for _, rules := range a.rules {
		r.Outcome = worst(r.Outcome, rules.Outcome)
		r.Suspects = append(r.Suspects, rules.Suspects...)
		errs = append(errs, rules.Err)
	}
	if r.Outcome == dataplane.Landed {
		return r
	}
	r.Suspects = unique(r.Suspects)
	r.Proven = a.proven(r)
	r.Err = fmt.Errorf("write %s virtual servers: %w", a.family, joined(errs))
	r.Certain = a.certain()
	return r
}

// proven reports whether only objects of Services were rejected, and others landed.
func (a *attempt) proven(r dataplane.Receipt) bool {
	if r.Outcome != dataplane.Rejected || len(a.rules) > 0 || len(r.Suspects) == 0 || r.Written.Objects == 0 {
		return false
	}
	return !slices.ContainsFunc(a.order, func(c *dataplane.Change) bool { return c.Owner == service.Node })
}

// certain returns the objects of the batch whose state is certain.
func (a *attempt) certain() map[dataplane.ID]*dataplane.Object {
	certain := make(map[dataplane.ID]*dataplane.Object, len(a.batch.Changes))
	for i := range a.batch.Changes {
		c := &a.batch.Changes[i]
		f, failed := a.failed[c.ID]
		switch {
		case !failed:
			certain[c.ID] = c.After
		case f.known:
			certain[c.ID] = f.found
		}
	}
	return certain
}

// outcomeOf returns the outcome of a batch with an error about one object.
func outcomeOf(err error) dataplane.Outcome {
	switch {
	case err == nil:
		return dataplane.Landed
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		wire.Unknown(err), contradicts(err):
		return dataplane.Unknown
	case isBusy(err):
		return dataplane.Busy
	case errors.Is(err, wire.ErrUnsupported):
		return dataplane.Unsupported
	default:
		return dataplane.Rejected
	}
}

// contradicts reports whether an error means that the kernel's state changed unexpectedly: a set or
// device that the request needs does not exist.
func contradicts(err error) bool {
	return errors.Is(err, wire.ErrNoSet) || errors.Is(err, wire.ErrNoDevice)
}

// isBusy reports whether the same request may succeed later.
func isBusy(err error) bool {
	_, unsent := errors.AsType[*wire.NotSentError](err)
	return unsent || errors.Is(err, wire.ErrInUse) || netlink.Busy(err)
}

// worst returns the outcome that leaves the kernel's state less certain, or else the one that may
// be over sooner.
func worst(a, b dataplane.Outcome) dataplane.Outcome {
	severity := [...]int{
		dataplane.Landed: 0, dataplane.Unsupported: 1, dataplane.Rejected: 2, dataplane.Busy: 3, dataplane.Unknown: 4,
	}
	if severity[a] >= severity[b] {
		return a
	}
	return b
}

// unique returns the Services among the owners of rejected objects, each once.
func unique(owners []service.Key) []service.Key {
	slices.SortFunc(owners, service.Key.Compare)
	owners = slices.Compact(owners)
	return slices.DeleteFunc(owners, func(k service.Key) bool { return k == service.Node })
}

// errorsMax is how many rejections of a batch are reported.
const errorsMax = 8

// joined joins the first rejections into one error.
func joined(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if more := len(errs) - errorsMax; more > 0 {
		errs = append(errs[:errorsMax:errorsMax], fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}
