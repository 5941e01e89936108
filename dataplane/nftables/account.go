package nftables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// refusedError says that the kernel has refused a transaction, which therefore
// has changed nothing.
type refusedError struct {
	refusals []*wire.Refusal
	changes  []dataplane.Change
}

// refusalsShown bounds the message: one cause may be refused many times.
const refusalsShown = 3

// Error gives the kernel's reasons with the objects that they are about.
func (e *refusedError) Error() string {
	var texts []string
	for _, r := range e.refusals[:min(len(e.refusals), refusalsShown)] {
		text := r.Error()
		if len(r.About) > 0 {
			c := &e.changes[r.About[0]]
			text = fmt.Sprintf("%s (of %s): %s", describeID(c.ID), c.Owner, text)
		}
		texts = append(texts, text)
	}
	if more := len(e.refusals) - refusalsShown; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// Unwrap gives the first reason.
func (e *refusedError) Unwrap() error { return e.refusals[0] }

// unfinishedError says that time was up between two transactions.
type unfinishedError struct{ cause error }

// Error gives the cause.
func (e *unfinishedError) Error() string {
	return fmt.Sprintf("stopped between two transactions: %v", e.cause)
}

// Unwrap gives the cause.
func (e *unfinishedError) Unwrap() error { return e.cause }

// account turns a failure into a receipt: its kind, and what is in the kernel
// now.
func (a *attempt) account(ctx context.Context, changes []dataplane.Change, failure error) {
	a.receipt.Err = fmt.Errorf("write %s rules: %w", a.w.d.family, failure)
	var refused *refusedError
	var notTaken *netlink.NotSentError
	var unfinished *unfinishedError
	switch {
	case errors.As(failure, &refused):
		a.accountRefused(ctx, changes, refused)
	case errors.As(failure, &notTaken):
		a.receipt.Outcome = dataplane.Unknown
		if isBusy(failure) {
			a.receipt.Outcome = dataplane.Busy
		}
		a.receipt.Certain = a.certain(ctx, changes)
	case errors.As(failure, &unfinished):
		a.receipt.Outcome = dataplane.Unknown
		a.receipt.Certain = a.certain(ctx, changes)
	default:
		a.receipt.Outcome = dataplane.Unknown
	}
}

// certain gives what is known of the batch's objects after a failure in which
// the kernel has taken nothing by halves: nothing, when somebody else has changed
// tables since the first of several transactions, perhaps what it had made.
func (a *attempt) certain(ctx context.Context, changes []dataplane.Change) map[dataplane.ID]*dataplane.Object {
	switch {
	case a.plan == nil && a.exchanged:
		return nil
	case a.plan == nil:
		return untouched(changes)
	case a.landed > 0 && !a.undisturbed(ctx):
		return nil
	default:
		return a.plan.certain(a.landed)
	}
}

// undisturbed reports whether the tables have changed only as often as transactions
// of this batch have landed.
func (a *attempt) undisturbed(ctx context.Context) bool {
	now, err := a.reader.generation(context.WithoutCancel(ctx))
	return err == nil && now == a.generation+uint32(a.landed)
}

// accountRefused looks the objects up: a refusal may come from the kernel not
// holding what it was believed to.
func (a *attempt) accountRefused(ctx context.Context, changes []dataplane.Change, refused *refusedError) {
	ids := make([]dataplane.ID, 0, len(changes))
	for i := range changes {
		ids = append(ids, changes[i].ID)
	}
	there, err := a.lookUp(ctx, ids)
	if err != nil {
		a.receipt.Outcome = dataplane.Unknown
		a.receipt.Err = errors.Join(a.receipt.Err, fmt.Errorf("read back what landed: %w", err))
		return
	}
	a.receipt.Certain = make(map[dataplane.ID]*dataplane.Object, len(ids))
	for _, id := range ids {
		a.receipt.Certain[id] = there[id]
	}
	a.receipt.Outcome = dataplane.Rejected
	unexplained := a.unexplained(ctx, refused, there)
	switch {
	case len(unexplained) == 0:
		// Somebody else has changed the table: an audit has to look at all of
		// it, and nobody is to blame.
		a.receipt.Outcome = dataplane.Unknown
	case isStillHeld(unexplained):
		a.w.held = true
		a.receipt.Outcome = dataplane.Busy
	case isBusy(unexplained[0]):
		a.receipt.Outcome = dataplane.Busy
	case errors.Is(unexplained[0], unix.EOPNOTSUPP):
		a.receipt.Outcome = dataplane.Unsupported
	}
	a.receipt.Suspects = suspects(unexplained, refused.changes)
}

// unexplained gives the refusals that do not follow from the kernel's holding
// something else than was believed.
func (a *attempt) unexplained(ctx context.Context, refused *refusedError, there map[dataplane.ID]*dataplane.Object) []*wire.Refusal {
	b := &belief{attempt: a, there: there, believed: a.plan.certain(a.landed), inBatch: make(map[dataplane.ID]bool)}
	for i := range refused.changes {
		b.inBatch[refused.changes[i].ID] = true
	}
	sound := func(number int) bool { return !b.shaken(ctx, &refused.changes[number]) }
	return slices.DeleteFunc(slices.Clone(refused.refusals), func(r *wire.Refusal) bool {
		return len(r.About) > 0 && !slices.ContainsFunc(r.About, sound)
	})
}

// belief is what the refused transaction was built on, and what is there.
type belief struct {
	*attempt
	// believed is what the batch's objects should be after the transactions
	// that have landed; those that are half done are missing.
	believed, there map[dataplane.ID]*dataplane.Object
	inBatch         map[dataplane.ID]bool
}

// shaken reports whether a change was to build on something that is not there.
func (b *belief) shaken(ctx context.Context, c *dataplane.Change) bool {
	if before, whole := b.believed[c.ID]; whole && !dataplane.Same(before, b.there[c.ID]) {
		return true
	}
	if b.gone(ctx, c.ID) {
		return true
	}
	return c.After != nil && slices.ContainsFunc(c.After.Refs, func(ref dataplane.ID) bool { return b.gone(ctx, ref) })
}

// gone reports whether an object is absent that should be there, at least half
// done. One that is not in the batch should, since nobody adds it.
func (b *belief) gone(ctx context.Context, id dataplane.ID) bool {
	if b.inBatch[id] {
		believed, whole := b.believed[id]
		return b.there[id] == nil && (!whole || believed != nil)
	}
	object, err := b.reader.one(ctx, id)
	return err == nil && object == nil
}

// isStillHeld reports whether all that was refused is the deletion of chains: the
// kernel has not yet released what led there, and will.
func isStillHeld(refusals []*wire.Refusal) bool {
	return !slices.ContainsFunc(refusals, func(r *wire.Refusal) bool {
		return r.Kind != unix.NFT_MSG_DELCHAIN || r.Errno != unix.EBUSY
	})
}

// suspects are the owners of what was refused.
func suspects(refusals []*wire.Refusal, changes []dataplane.Change) []service.Key {
	var keys []service.Key
	for _, r := range refusals {
		for _, number := range r.About {
			if key := changes[number].Owner; key != service.Node && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// describeID names an object for people.
func describeID(id dataplane.ID) string {
	if _, isElement := setOf(id.Container); isElement {
		return fmt.Sprintf("element %x of %s", id.Name, id.Container)
	}
	return id.Container + " " + id.Name
}
