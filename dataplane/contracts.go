package dataplane

import (
	"context"
	"fmt"

	"github.com/sluice-proxy/sluice/service"
)

// Renderer turns values into objects of one domain. It is pure: equal input
// gives equal objects; it reads no clock, no network and no map in walk order.
// It is called by actors, concurrently.
type Renderer interface {
	// Service renders one Service. A view without ports of the domain's family
	// renders to nothing.
	Service(view *service.View, facts *service.NodeFacts) []Object
	// Node renders the scaffold: everything that belongs to no Service.
	Node(facts *service.NodeFacts) []Object
	// Naming reads the identities of what is rendered; nil when no object is a
	// frontend's or goes with another.
	Naming() Naming
}

// Writer makes one attempt to bring one batch into one domain. It does not
// retry, sleep or decide. It is called by one goroutine at a time. Both methods
// block and honour the context.
type Writer interface {
	// Write never returns an error by itself; the receipt says it all.
	Write(ctx context.Context, batch *Batch) Receipt
	// Read gives the kernel's own account of all objects that are ours in
	// this domain, wanted or not, as composed objects where the domain has a
	// Layout. An object whose bytes the backend cannot vouch for is given with
	// a Body that equals no rendered one.
	Read(ctx context.Context) ([]Object, error)
}

// Layout folds elements into the objects that the kernel replaces whole, for
// backends that cannot change single elements. It is pure bookkeeping: what it
// composes depends on the set of elements alone, never on the order in which
// they came (a restart must compose what its predecessor did). Called by one
// goroutine.
type Layout interface {
	// Put places or replaces an element.
	Put(element *Object, owner service.Key)
	// Remove takes an element away; unknown identities are ignored.
	Remove(id ID)
	// Flush gives the composed objects that may have changed since the last
	// call; a nil Object means that the composed object is gone. The work is
	// in proportion to the elements changed, never to all.
	Flush() []Composed
	// Path gives the identities of the composed objects that lead to an element, as
	// of the last Flush: all of them must be in the kernel for it to be in force.
	// Nil for an element that is not placed.
	Path(id ID) []ID
	// Recover sorts objects that were read from the kernel: it gives the elements that
	// the composed ones among them hold, but for what it cannot tell for an element,
	// and those objects that it does not compose. It changes nothing.
	Recover(read []*Object) (elements, others []*Object)
}

// Composed is one object put together by a Layout.
type Composed struct {
	ID     ID
	Object *Object
}

// Origin is implemented by writers that can say more of an object they have read than
// it says itself. Both methods are pure.
type Origin interface {
	// Owner reports the Service whose name the kernel keeps with an object.
	Owner(o *Object) (key service.Key, named bool)
	// Refs gives the identities that an object refers to: for an element, the set
	// that it is in comes first.
	Refs(o *Object) []ID
}

// Watcher is implemented by writers whose kernel announces, or can be asked
// cheaply about, changes made by somebody else.
type Watcher interface {
	// Watch calls changed (which does not block) whenever the domain's objects
	// may have been touched from outside, until the context ends. It says by
	// whom, where the kernel tells.
	Watch(ctx context.Context, changed func(by Stranger)) error
}

// Stranger is a process other than this one that has touched a domain's objects.
// The zero value is one that is not known.
type Stranger struct {
	// PID is the process's number as the kernel counts, which need not be that
	// of the PID namespace that one is in.
	PID int
	// Command is the name of the process as in /proc/PID/comm: 15 bytes at most.
	Command string
}

// String gives words for a log; empty when the process is not known.
func (s Stranger) String() string {
	switch {
	case s == Stranger{}:
		return ""
	case s.Command == "":
		return fmt.Sprintf("process %d", s.PID)
	default:
		return fmt.Sprintf("%s (process %d)", s.Command, s.PID)
	}
}
