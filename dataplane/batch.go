package dataplane

import (
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// Batch is what goes to the kernel in one write: the difference between what is
// wanted and what is known to be there, for the fragments it settles. It is
// immutable.
type Batch struct {
	// Number counts the batches of a domain from 1.
	Number uint64
	// Changes are unordered unless the domain's writer says otherwise; a
	// writer orders them so that every prefix of what lands is a correct state.
	Changes []Change
	// Contributions are the fragments that this batch settles when it lands.
	Contributions []Contribution
	// Control marks a batch that holds the scaffold only, written to find out
	// whether the node itself refuses (see docs/architecture.md, failures).
	Control bool
}

// Change brings one object from its known state to its wanted one.
type Change struct {
	ID ID
	// Before is what is known to be in the kernel, nil when the object is
	// absent there.
	Before *Object
	// After is what is wanted, nil to remove the object.
	After *Object
	// Owner is the Service that the object belongs to, service.Node for
	// scaffold and composed objects (those name owners by their Parts).
	Owner service.Key
	// Unsure is set when the kernel's state of this object is not known, so
	// that Before cannot be relied on: it may or may not exist there.
	Unsure bool
}

// Contribution is one fragment's share of a batch.
type Contribution struct {
	Key      service.Key
	Revision service.Revision
	// Trigger and Received are the earliest of the fragments that this one
	// stands for; see Fragment.
	Trigger  time.Time
	Received time.Time
}
