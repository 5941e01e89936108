// SPDX-License-Identifier: Apache-2.0

// Package state has the types for the state of Services and of the proxy. The book, health and the parts of the daemon
// fill them. The responses of the socket, the web UI and /metrics/services show them. Fields with a JSON name are part
// of responses without conversion.
package state

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// State is the state of a Service, overall or in one domain.
type State string

// The states, the gravest last.
const (
	Applied    State = "applied"              // the kernel has the newest rules
	TooLarge   State = "applied (too large)"  // some frontends are left out: the Service needs too many objects
	Pending    State = "pending"              // the newest rules are not written yet
	Shadowed   State = "shadowed"             // another Service owns some of its addresses
	Held       State = "held"                 // the previous rules remain; the states below add the reason
	Rejected   State = "held (rejected)"      // the kernel rejects the newest rules
	NotLanding State = "held (does not land)" // writes of the newest rules fail without a rejection
	Failing    State = "held (actor failing)" // the actor of the Service failed
)

// Graver reports whether a state is worse than another one. The empty state ranks with Applied.
func (s State) Graver(than State) bool { return ranks[s] > ranks[than] }

var ranks = map[State]int{
	Applied: 0, TooLarge: 1, Pending: 2, Shadowed: 3, Held: 4, Rejected: 4, NotLanding: 4, Failing: 5,
}

// Class returns the state without the reason: applied, pending, shadowed or held.
func (s State) Class() State {
	class, _, _ := strings.Cut(string(s), " (")
	return State(class)
}

// Counts has numbers of Services by the class of their state. Status, web UI, metrics and /healthz?verbose show them.
type Counts struct {
	Applied  int `json:"applied"`
	Pending  int `json:"pending"`
	Shadowed int `json:"shadowed"`
	Held     int `json:"held"`
	// WithoutEndpoints counts those of these Services to which new connections reach no endpoint. It omits pending ones,
	// whose endpoints are not known.
	WithoutEndpoints int `json:"withoutEndpoints"`
}

// Add counts a Service.
func (c *Counts) Add(r *Record) {
	class := r.State.Class()
	switch class {
	case Applied:
		c.Applied++
	case Pending:
		c.Pending++
	case Shadowed:
		c.Shadowed++
	default:
		c.Held++
	}
	if r.Endpoints == 0 && class != Pending {
		c.WithoutEndpoints++
	}
}

// String returns a phrase.
func (c *Counts) String() string {
	return fmt.Sprintf("%d applied, %d pending, %d shadowed, %d held; %d without endpoints", c.Applied, c.Pending, c.Shadowed, c.Held, c.WithoutEndpoints)
}

// Record is the state of one Service, and its history since its actor began.
type Record struct {
	// Endpoints counts the endpoints that may get new connections, over all ports and families, as last
	// applied, and Local those on this node. Draining counts endpoints that only keep their connections.
	Endpoints int `json:"endpoints"`
	Local     int `json:"localEndpoints"`
	Draining  int `json:"drainingEndpoints,omitempty"`
	// State is the gravest over all domains.
	State State `json:"state"`
	// Changes counts the applied revisions, over all families.
	Changes    int       `json:"changes"`
	LastChange time.Time `json:"lastChange,omitzero"`
	// LastMicros and LongestMicros are how long changes took from their receipt until they were
	// applied; nil before the first measurement.
	LastMicros    *int64 `json:"lastMicros,omitempty"`
	LongestMicros *int64 `json:"longestMicros,omitempty"`
	// Restarts counts how often the Service's actor was started again after a failure.
	Restarts int `json:"restarts"`

	Key   service.Key `json:"-"`
	Actor Actor       `json:"-"`
	// Revision is the newest applied one.
	Revision service.Revision `json:"-"`
	// CauseLastMicros and CauseLongestMicros count from the cause in the cluster, by its clock.
	CauseLastMicros, CauseLongestMicros *int64                             `json:"-"`
	Families                            service.PerFamily[FamilyEndpoints] `json:"-"`
	// FlowsDeleted counts the stale conntrack entries that were deleted.
	FlowsDeleted int `json:"-"`
	// Quarantines has an entry for each domain in which the Service is quarantined.
	Quarantines []Quarantine `json:"-"`
	// Shadowed is set if other Services own addresses and ports that this one requests.
	Shadowed bool `json:"-"`
}

// FamilyEndpoints are the endpoints of a Service in one family: addresses and ports, summed over its
// service ports.
type FamilyEndpoints struct {
	// Served is set if the Service has ports in this family.
	Served bool
	// Local and Remote count endpoints that may get new connections: ready ones, or, if none is, those that still serve
	// while they terminate. Established counts endpoints that only keep UDP flows, and Draining those that only keep
	// connections. The fields are small because each Service of a node has them in memory.
	Local, Remote, Established, Draining uint32
}

// Quarantine is a Service whose newest rules the kernel rejects, or which do not land.
type Quarantine struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Revision  string `json:"revision"`
	// Reason is the kernel's error message. It begins with "does not land" if writes fail
	// without a rejection.
	Reason string    `json:"reason" terminal:"lines"`
	Since  time.Time `json:"since"`
	// Domain is the domain that rejects the rules, and Class the class of the reason.
	Domain string `json:"-"`
	Class  string `json:"-"`
}

// State returns the state of the Service.
func (q *Quarantine) State() State {
	if q.Class == ClassDoesNotLand {
		return NotLanding
	}
	return Rejected
}

// ClassDoesNotLand is the class of a Service whose writes fail without a rejection.
const ClassDoesNotLand = "does_not_land"

// The states of an actor.
const (
	ActorRunning    = "running"
	ActorRestarting = "restarting"
	ActorParked     = "parked"
)

// Actor is the state of the goroutine that owns a Service.
type Actor struct {
	// State is one of ActorRunning, ActorRestarting and ActorParked.
	State       string    `json:"state"`
	Restarts    int       `json:"restarts"`
	Failures    int       `json:"failures"`
	LastFailure string    `json:"lastFailure,omitempty" terminal:"lines"`
	FailedAt    time.Time `json:"failedAt,omitzero"`
	ParkedUntil time.Time `json:"parkedUntil,omitzero"`
	// TooLarge is the number of objects that the Service needs, the limit, and the number of frontends that are left
	// out; empty if the Service is within the limit.
	TooLarge string `json:"tooLarge,omitempty" terminal:"lines"`
}

// TimelineMax bounds the changes that are remembered of one Service.
const TimelineMax = 20

// Change is one change of a Service in one domain.
type Change struct {
	Domain   string `json:"domain"`
	Revision string `json:"revision"`
	// Causes name what changed: "service", "endpoints", "node", "start" (of the actor) or "observed".
	Causes []string `json:"causes"`
	// Outcome is Applied or Held.
	Outcome State `json:"outcome"`
	// Received is when the source delivered the oldest cause. If the cause does not come from a source,
	// it is when the actor saw the cause.
	Received time.Time `json:"received"`
	// The other times are in microseconds after Received. TriggerMicros is negative, because the cause
	// in the cluster came before. Zero means unknown.
	TriggerMicros  int64 `json:"triggerMicros,omitempty"`
	SeenMicros     int64 `json:"seenMicros"`
	RenderedMicros int64 `json:"renderedMicros"`
	BatchedMicros  int64 `json:"batchedMicros"`
	DoneMicros     int64 `json:"doneMicros"`
	// Batch is the number of the domain's batch; 0 if nothing had to be written.
	Batch uint64 `json:"batch,omitempty"`
	// Endpoints counts the endpoints that may get new connections after this change, in the domain's family.
	Endpoints int `json:"endpoints"`
}
