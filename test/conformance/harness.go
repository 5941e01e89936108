package conformance

import (
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Harness is one backend in one family, as the suite meets it.
type Harness struct {
	Family   service.Family
	Renderer dataplane.Renderer
	// NewLayout gives an empty layout; nil for a backend that has none.
	NewLayout func() dataplane.Layout
	// Open gives a node with an empty kernel, and cleans up after the test.
	Open func(t *testing.T, world Fixture) Node
	// LoopbackNodePorts says that node ports answer on 127.0.0.1.
	LoopbackNodePorts bool
	// UnallocatedDropped says that packets to addresses of the Service range
	// are dropped when no Service has the address; otherwise they go through.
	UnallocatedDropped bool
}

// Node is one kernel and the ways to it.
type Node struct {
	// NewWriter gives a writer as a freshly started process would have.
	NewWriter func() dataplane.Writer
	Probe     Probe
	Meddler   Meddler
}

// Meddler does to a kernel what others do to it, and to objects what makes a
// kernel refuse them.
type Meddler interface {
	// Poison gives the object with something that the kernel refuses in it, and
	// false when objects of this kind cannot be poisoned.
	Poison(object dataplane.Object) (dataplane.Object, bool)
	// Damage removes something of an object from the kernel, and gives false
	// when there is nothing in it to remove.
	Damage(t *testing.T, id dataplane.ID) bool
	// Wipe removes everything from the tables that the backend uses.
	Wipe(t *testing.T)
	// Plant puts something into the kernel that belongs to somebody else.
	Plant(t *testing.T)
	// CheckPlanted fails the test unless that is still there, unchanged.
	CheckPlanted(t *testing.T)
}
