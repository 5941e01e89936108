package actors

import (
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// Event is something that happened in the directory or to an actor; one of the
// types in this file.
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

// Drains says how many endpoints of a Service drain in a domain now. One
// incarnation tells it when the number changes, and begins with none.
type Drains struct {
	Key       service.Key
	Domain    string
	Family    service.Family
	Endpoints int
}

// DrainCut says that endpoints drain no more although they may have had connections
// left, which are cut by that.
type DrainCut struct {
	Key       service.Key
	Domain    string
	Endpoints []service.Endpoint
	// Deadline is what has passed; 0 when more than Bound endpoints of the
	// Service were draining.
	Deadline time.Duration
	Bound    int
}

// DrainUnknown says that it cannot be found out whether an endpoint has connections
// left; it drains until its deadline. It is told once, until something can be found
// out again.
type DrainUnknown struct {
	Key      service.Key
	Domain   string
	Endpoint service.Endpoint
	Err      error
}

// HeldUnknown says that it could not be found out what was draining when an actor
// started: connections to that may have been cut.
type HeldUnknown struct {
	Key    service.Key
	Domain string
	Err    error
}

func (Refused) event()      {}
func (RefusedGone) event()  {}
func (Drains) event()       {}
func (DrainCut) event()     {}
func (DrainUnknown) event() {}
func (HeldUnknown) event()  {}
