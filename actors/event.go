package actors

import "github.com/sluice-proxy/sluice/service"

// Event is something that happened in the directory; one of the types in this
// file.
type Event interface{ event() }

// Refused says that there is no room for another actor, so that a Service is
// not served.
type Refused struct {
	Key         service.Key
	MaxServices int
}

// RefusedGone says that a Service which was refused does not exist any more: it
// misses nothing now.
type RefusedGone struct{ Key service.Key }

func (Refused) event()     {}
func (RefusedGone) event() {}
