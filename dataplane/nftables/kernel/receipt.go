// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// rejectedError means that the kernel rejected a transaction, which therefore changed
// nothing.
type rejectedError struct {
	rejections []*wire.Rejection
	family     service.Family
	changes    []dataplane.Change
}

// rejectionsShown limits the text, because one cause may have many rejections.
const rejectionsShown = 3

// Error returns the kernel's reasons with the objects that they are about.
func (e *rejectedError) Error() string {
	var texts []string
	for _, r := range e.rejections[:min(len(e.rejections), rejectionsShown)] {
		text := r.Error()
		if len(r.About) > 0 {
			c := &e.changes[r.About[0]]
			text = fmt.Sprintf("%s (of %s): %s", describeID(e.family, c.ID), c.Owner, text)
		}
		texts = append(texts, text)
	}
	if more := len(e.rejections) - rejectionsShown; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the first reason.
func (e *rejectedError) Unwrap() error { return e.rejections[0] }

// unfinishedError means that the context ended between two transactions.
type unfinishedError struct{ cause error }

// Error returns the cause.
func (e *unfinishedError) Error() string {
	return fmt.Sprintf("stopped between two transactions: %v", e.cause)
}

// Unwrap returns the cause.
func (e *unfinishedError) Unwrap() error { return e.cause }

// account fills the receipt after a failure: the outcome, and the objects whose state is certain.
func (a *attempt) account(ctx context.Context, changes []dataplane.Change, failure error) {
	a.receipt.Err = fmt.Errorf("write %s rules: %w", a.w.d.Family, failure)
	var rejected *rejectedError
	var notTaken *netlink.NotSentError
	var unfinished *unfinishedError
	switch {
	case errors.As(failure, &rejected):
		a.accountRejected(ctx, changes, rejected)
	case errors.As(failure, &notTaken):
		a.receipt.Outcome = dataplane.Unknown
		if a.receipt.Certain = a.certain(ctx, changes); a.receipt.Certain != nil && netlink.Busy(failure) {
			a.receipt.Outcome = dataplane.Busy // otherwise an audit comes first
		}
	case errors.As(failure, &unfinished):
		a.receipt.Outcome = dataplane.Unknown
		a.receipt.Certain = a.certain(ctx, changes)
	default:
		a.receipt.Outcome = dataplane.Unknown
	}
}

// certain returns the known state of the batch's objects after a failure, if the outcome of every
// transaction is known. It returns nothing if another process changed tables after the first
// transaction landed, because it may have changed objects of that transaction.
func (a *attempt) certain(ctx context.Context, changes []dataplane.Change) map[dataplane.ID]*dataplane.Object {
	switch {
	case a.plan == nil:
		return dataplane.Untouched(changes)
	case a.landed > 0 && !a.undisturbed(ctx):
		return nil
	default:
		return a.plan.certain(a.landed)
	}
}

// undisturbed reports whether only this batch's transactions changed tables during the attempt.
func (a *attempt) undisturbed(ctx context.Context) bool {
	now, err := a.reader.generation(context.WithoutCancel(ctx))
	return err == nil && now == a.generation+uint32(a.landed)
}

// accountRejected looks the objects up, because the reason for a rejection may be that the kernel's
// state differs from the ledger's.
func (a *attempt) accountRejected(ctx context.Context, changes []dataplane.Change, rejected *rejectedError) {
	ids := make([]dataplane.ID, 0, len(changes))
	for i := range changes {
		ids = append(ids, changes[i].ID)
	}
	there, err := a.lookUp(ctx, ids)
	if err != nil {
		a.receipt.Outcome = dataplane.Unknown
		a.receipt.Err = errors.Join(a.receipt.Err, fmt.Errorf("read back the applied objects: %w", err))
		return
	}
	a.receipt.Certain = make(map[dataplane.ID]*dataplane.Object, len(ids))
	for _, id := range ids {
		a.receipt.Certain[id] = there[id]
	}
	a.receipt.Outcome = dataplane.Rejected
	unexplained := a.unexplained(ctx, rejected, there)
	switch {
	case len(unexplained) == 0:
		// Another process changed the table. An audit must read all of it, and no
		// Service is suspect.
		a.receipt.Outcome = dataplane.Unknown
	case netlink.Busy(unexplained[0]):
		a.receipt.Outcome = dataplane.Busy
	case errors.Is(unexplained[0], unix.EOPNOTSUPP):
		a.receipt.Outcome = dataplane.Unsupported
	}
	a.receipt.Suspects = suspects(unexplained, rejected.changes)
}

// unexplained returns the rejections that are not explained by a difference between the kernel's
// state and the ledger's.
func (a *attempt) unexplained(
	ctx context.Context, rejected *rejectedError, there map[dataplane.ID]*dataplane.Object,
) []*wire.Rejection {
	b := &belief{attempt: a, there: there, believed: a.plan.certain(a.landed), inBatch: make(map[dataplane.ID]bool)}
	for i := range rejected.changes {
		b.inBatch[rejected.changes[i].ID] = true
	}
	sound := func(number int) bool { return !b.shaken(ctx, &rejected.changes[number]) }
	return slices.DeleteFunc(slices.Clone(rejected.rejections), func(r *wire.Rejection) bool {
		return len(r.About) > 0 && !slices.ContainsFunc(r.About, sound)
	})
}

// belief compares the state that the rejected transaction assumes with the kernel's.
type belief struct {
	*attempt
	// believed has the expected state of the batch's objects after the transactions that
	// landed, without objects of which only some steps were carried out.
	believed, there map[dataplane.ID]*dataplane.Object
	inBatch         map[dataplane.ID]bool
}

// shaken reports whether a change depends on a state that the kernel does not have.
func (b *belief) shaken(ctx context.Context, c *dataplane.Change) bool {
	if before, whole := b.believed[c.ID]; whole && !dataplane.Same(before, b.there[c.ID]) {
		return true
	}
	if b.gone(ctx, c.ID) {
		return true
	}
	return c.After != nil && slices.ContainsFunc(c.After.Refs(), func(ref dataplane.ID) bool { return b.gone(ctx, ref) })
}

// gone reports whether an object is missing that should exist, at least in part. An object that is
// not in the batch should exist, because the batch does not add it.
func (b *belief) gone(ctx context.Context, id dataplane.ID) bool {
	if b.inBatch[id] {
		believed, whole := b.believed[id]
		return b.there[id] == nil && (!whole || believed != nil)
	}
	object, err := b.reader.one(ctx, id)
	return err == nil && object == nil
}

// suspects returns the owners of the rejected changes.
func suspects(rejections []*wire.Rejection, changes []dataplane.Change) []service.Key {
	var keys []service.Key
	for _, r := range rejections {
		for _, number := range r.About {
			if key := changes[number].Owner; key != service.Node && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// describeID returns a readable name of an object.
func describeID(family service.Family, id dataplane.ID) string {
	if _, isElement := render.SetOf(id.Container); isElement {
		text, err := render.ElementText(family, &dataplane.Object{ID: id})
		if err != nil {
			text = fmt.Sprintf("%x", id.Name)
		}
		return fmt.Sprintf("element %s of %s", text, id.Container)
	}
	return id.Container + " " + id.Name
}
