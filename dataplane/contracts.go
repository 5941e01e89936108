// SPDX-License-Identifier: Apache-2.0

// Package dataplane is the language between actors, aggregators and kernel writers: objects, fragments, batches,
// receipts and acks, and the contracts that a backend implements (Renderer, Naming, Writer, Layout).
// It depends on no backend: the domain's Naming interprets identities. Values are immutable once they are handed over.
// The package does not access the kernel.
package dataplane

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
)

// Renderer turns views into objects of one domain. It is pure: equal input gives equal
// objects in equal order. Actors call it concurrently.
type Renderer interface {
	// Service renders one Service. A view without ports of the domain's family renders to nothing. It polls the context
	// in every loop over frontends. Once the context has ended, it may return anything, because the actor's output is
	// dropped.
	Service(ctx context.Context, view *service.View, facts *service.NodeFacts) []Object
	// Node renders the scaffold: everything that belongs to no Service.
	Node(facts *service.NodeFacts) []Object
	// Naming returns the Naming of the rendered objects.
	Naming() Naming
}

// RenderNode renders everything that belongs to no Service of the API: the scaffold and the self-test.
func RenderNode(ctx context.Context, r Renderer, facts *service.NodeFacts) []Object {
	if facts.SelfTest == (service.SelfTest{}) {
		return r.Node(facts)
	}
	return append(r.Node(facts), r.Service(ctx, facts.SelfTestView(), facts)...)
}

// Naming interprets the objects of a backend, so that no other package depends on container names. All methods are
// pure. Frontend is as cheap as a map lookup: the ledger calls it for each claim that changes.
type Naming interface {
	// Frontend returns the frontend that an object is for. Only the Service that has the frontend gets the object. It
	// returns false for an object that Services share, or that is named after its Service.
	Frontend(id ID) (service.Frontend, bool)
	// Stage returns the stage of an object on the path of packets to endpoints.
	Stage(id ID) Stage
	// Sends calls each with the endpoints that an object sends new connections to. The object may be one
	// that was read from the kernel.
	Sends(o *Object, each func(netip.AddrPort))
}

// Stage is a section of the path of packets to endpoints. If all objects of a stage are missing, no Service works.
type Stage uint8

const (
	// StageNone is for objects that are not on the path: they reject, masquerade, admit or count.
	StageNone Stage = iota
	// StageEntry is for objects that lead the node's packets to the rules: hooks, base chains, a device.
	StageEntry
	// StageDispatch is for objects that lead packets to the frontends of all Services.
	StageDispatch
	// StageFrontend is for objects that belong to one frontend or Service each.
	StageFrontend
	stages
)

// Stages is the number of stages, including StageNone.
const Stages = int(stages)

// Writer contains the functions with which the core writes and reads one domain's kernel. A call makes one attempt: it
// does not retry, sleep or decide. Functions with a context block and honor it. Write and Read are required; any other
// field is nil if the backend does not support it. One goroutine at a time calls Write, Read, ReadAhead, Cut and Close.
// The other functions may run at the same time.
type Writer struct {
	// Write writes one batch. It reports errors in the receipt.
	Write func(ctx context.Context, batch *Batch) Receipt
	// Read returns all our objects in the kernel, wanted or not, as composed objects if
	// the domain has a Layout. An object that the backend cannot read exactly has a Body
	// that equals no rendered one.
	Read func(ctx context.Context) ([]Object, error)
	// ReadAhead reads what the next Read returns if nothing has changed by then. It returns no error, because Read
	// tries again.
	ReadAhead func(ctx context.Context)
	// Cut returns what the next batch does of all planned changes, in their order: at least one, if there is any. The
	// rest waits for later batches. Each batch leaves every Service as it was, as it is wanted, or between the two where
	// no packet notices. Without Cut, a batch contains all of them.
	Cut func(changes []Change) []Change
	// Watch calls changed (which does not block) whenever another program may have
	// changed the domain's objects, until the context ends. It passes the process if
	// the kernel names it.
	Watch func(ctx context.Context, changed func(by ForeignProcess)) error
	// Leaving counts, by Service, the removed endpoints whose connections the writer keeps in the kernel for a while. The
	// ledger does not see these endpoints: they are neither wanted nor read. Leaving does not block. The writer does not
	// change the result later.
	Leaving func() map[service.Key]int
	// Foresee returns the object that a write of a change would leave in the kernel: what is wanted, and the endpoints
	// that would keep connections. It changes nothing.
	Foresee func(ctx context.Context, c *Change) (*Object, error)
	// Traffic returns what the kernel counted.
	Traffic func(ctx context.Context) (traffic.Reading, error)
	// Close releases the resources of the process. The rules stay in the kernel.
	Close func() error
	// Origin interprets objects that were read.
	Origin Origin
}

// Origin tells more about an object from the kernel than the fields of Object contain. Both methods are pure.
type Origin interface {
	// Owner returns the Service that an object in the kernel names.
	Owner(o *Object) (key service.Key, named bool)
	// Refs returns the objects that an object refers to; for an element, its set comes
	// first.
	Refs(o *Object) []ID
}

// Layout folds elements into objects that the kernel replaces whole, for backends that cannot change single elements.
// It is pure: the result depends on the set of elements, never on their order of arrival, so a new process composes the
// same objects as the previous one. One goroutine calls it.
type Layout interface {
	// Put places or replaces an element.
	Put(element *Object, owner service.Key)
	// Remove removes an element; unknown identities are ignored.
	Remove(id ID)
	// Flush returns the composed objects that may have changed since the last call; a
	// nil Object means that it is gone. The work is proportional to the changed
	// elements, never to all.
	Flush() []Composed
	// Path returns the composed objects that lead to an element, as of the last Flush:
	// all of them must be in the kernel for the element to be applied. Nil for an
	// unknown element.
	Path(id ID) []ID
	// Recover returns the elements of the composed objects among those read from the
	// kernel, as far as it recognizes them, and the objects that it does not compose. It
	// changes nothing.
	Recover(read []*Object) (elements, others []*Object)
}

// Composed is one object composed by a Layout.
type Composed struct {
	ID     ID
	Object *Object
}

// ForeignProcess is another process that changed a domain's objects. The zero value is an unknown process.
type ForeignProcess struct {
	// PID is the process's number in the initial PID namespace.
	PID int
	// Command is the name of the process as in /proc/PID/comm, at most 15 bytes.
	Command string
	// Origin describes its parents, and its container or unit; empty if that cannot be read.
	Origin string
}

// String returns text for a log; empty for an unknown process.
func (s ForeignProcess) String() string {
	text := ""
	switch {
	case s == ForeignProcess{}:
		return ""
	case s.Command == "":
		text = fmt.Sprintf("process %d", s.PID)
	default:
		text = fmt.Sprintf("%s (process %d)", s.Command, s.PID)
	}
	if s.Origin != "" {
		text += ", " + s.Origin
	}
	return text
}
