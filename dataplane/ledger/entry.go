package ledger

import (
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// entry is the account of one object.
//
// Invariant: the object is in the ledger's dirty set exactly when it differs().
type entry struct {
	// claims are empty for objects composed by the layout.
	claims claims
	// wanted is what should be in the kernel; nil for nothing, and for
	// elements that the layout folds into composed objects.
	wanted *dataplane.Object
	// owner is whose object it is: the winner of the claims, or service.Node
	// for composed objects and for what nobody wants.
	owner service.Key
	// known is what is in the kernel, as far as we know; nil for nothing.
	known *dataplane.Object
	// unsure means that known cannot be relied on.
	unsure bool
}

func (e *entry) differs() bool {
	return e.unsure || !dataplane.Same(e.wanted, e.known)
}

// idle tells that the account can be closed.
func (e *entry) idle() bool {
	return e.claims.len() == 0 && e.wanted == nil && e.known == nil && !e.unsure
}
