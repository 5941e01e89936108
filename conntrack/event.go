package conntrack

import (
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// Event is something that happened; one of the types in this file.
type Event interface{ event() }

// Swept says how one pass over the kernel's flows ended.
type Swept struct {
	Family service.Family
	// Frontends counts those that were to be cleaned, and Flows the UDP flows
	// that the kernel showed.
	Frontends, Flows int
	// Deleted counts the flows that were deleted, and Services tells how many
	// of them each Service's change has made stale. Services is nil when
	// nothing was deleted.
	Deleted  int
	Services map[service.Key]int
	// Took is the time from the start of the sweep to its end.
	Took time.Duration
	// Err says why the sweep is to be repeated; nil when it has done everything.
	Err error
	// Failures counts the sweeps that have failed since the last that did not,
	// this one included.
	Failures int
}

func (Swept) event() {}
