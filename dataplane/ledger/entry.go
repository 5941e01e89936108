package ledger

import (
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// entry is the account of one object. There are as many as there are objects in
// the kernel, so it is kept small.
//
// Invariant: dirty is set exactly when the entry differs().
type entry struct {
	// claims are empty for objects composed by the layout.
	claims claims
	// wanted is what should be in the kernel; nil for nothing, and for
	// elements that the layout folds into composed objects.
	wanted *dataplane.Object
	// known is what is in the kernel, as far as we know; nil for nothing.
	known *dataplane.Object
	// unsure means that known cannot be relied on.
	unsure bool
	// dirty and listed belong to dirtyList, seen to Observe, which leaves it
	// unset.
	dirty, listed, seen bool
}

// owner is whose object it is: the winner's, that of the account which wanted it last
// when nobody wants it any more, and service.Node's for composed objects and for what
// no Service has wanted since the process started.
func (e *entry) owner() service.Key {
	if winner := e.claims.winner(); winner != nil {
		return winner.by.key
	}
	if last := e.claims.last(); last != nil {
		return last.key
	}
	return service.Node
}

func (e *entry) differs() bool {
	return e.unsure || !dataplane.Same(e.wanted, e.known)
}

// idle tells that the account can be closed.
func (e *entry) idle() bool {
	return e.claims.len() == 0 && e.wanted == nil && e.known == nil && !e.unsure
}
