// SPDX-License-Identifier: Apache-2.0

// Package state has the types for the state of Services and of the proxy. The book, health and the parts of the daemon
// fill them. The answers of the socket, the page and /metrics/services show them; what has a name in JSON is in answers
// as it is.
package state

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// State says how a Service, or its share of a domain, stands.
type State string

// The states, the gravest last.
const (
	Applied    State = "applied"              // the kernel has the newest rules
	TooLarge   State = "applied (too large)"  // and some frontends are left out: the Service needs too many objects
	Pending    State = "pending"              // the newest rules are on the way
	Shadowed   State = "shadowed"             // another Service has some of its addresses
	Held       State = "held"                 // for the reason that follows in brackets, if it is known
	Rejected   State = "held (rejected)"      // the kernel rejects the newest rules; the previous ones stay
	NotLanding State = "held (does not land)" // writes of the newest rules fail without a rejection; the previous ones stay
	Failing    State = "held (actor failing)" // the actor has failed; the rules stay as they are
)

// Graver reports whether a state is worse than another one; the empty state is the best.
func (s State) Graver(than State) bool { return ranks[s] > ranks[than] }

var ranks = map[State]int{
	Applied: 0, TooLarge: 1, Pending: 2, Shadowed: 3, Held: 4, Rejected: 4, NotLanding: 4, Failing: 5,
}

// Class returns the state without the reason: applied, pending, shadowed or held.
func (s State) Class() State {
	class, _, _ := strings.Cut(string(s), " (")
	return State(class)
}

// Counts has numbers of Services by the class of their state. Status, page, metrics and /healthz?verbose show them.
type Counts struct {
	Applied  int `json:"applied"`
	Pending  int `json:"pending"`
	Shadowed int `json:"shadowed"`
	Held     int `json:"held"`
	// WithoutEndpoints are some of these: those that new connections to them reach no endpoint. It is not known of pending
	// ones.
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
	// Endpoints may get new connections, summed over ports and families, as last applied; Local
	// are those of them on this node. Draining ones keep the connections that they have.
	Endpoints int `json:"endpoints"`
	Local     int `json:"localEndpoints"`
	Draining  int `json:"drainingEndpoints,omitempty"`
	// State is the gravest over all domains.
	State State `json:"state"`
	// Changes counts the revisions that came into force, over all families.
	Changes    int       `json:"changes"`
	LastChange time.Time `json:"lastChange,omitzero"`
	// LastMicros and LongestMicros are how long changes took from their receipt until they were
	// applied; nil before the first that was measured.
	LastMicros    *int64 `json:"lastMicros,omitempty"`
	LongestMicros *int64 `json:"longestMicros,omitempty"`
	// Restarts counts how often the Service's actor was started again after a failure.
	Restarts int `json:"restarts"`

	Key   service.Key `json:"-"`
	Actor Actor       `json:"-"`
	// Revision is the newest applied.
	Revision service.Revision `json:"-"`
	// CauseLastMicros and CauseLongestMicros count from the cause in the cluster, by its clock.
	CauseLastMicros, CauseLongestMicros *int64                             `json:"-"`
	Families                            service.PerFamily[FamilyEndpoints] `json:"-"`
	// FlowsDeleted counts the stale conntrack entries that were deleted.
	FlowsDeleted int `json:"-"`
	// Quarantines has one for each domain that holds the Service back.
	Quarantines []Quarantine `json:"-"`
	// Shadowed says that other Services have addresses and ports that this one wants.
	Shadowed bool `json:"-"`
}

// FamilyEndpoints are the endpoints of a Service in one family: addresses and ports, summed over its
// service ports.
type FamilyEndpoints struct {
	// Served says that the Service has ports in this family.
	Served bool
	// Local and Remote ones may get new connections: ready ones, or, if none is, those that still serve while they
	// terminate. Established ones keep their UDP flows, and Draining ones their connections. Each Service of a node has
	// these fields in memory, so they are small.
	Local, Remote, Established, Draining uint32
}

// Quarantine is a Service whose newest rules the kernel rejects, or which do not land.
type Quarantine struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Revision  string `json:"revision"`
	// Reason has the kernel's words. It begins with "does not land" if writes fail without a
	// rejection.
	Reason string    `json:"reason" terminal:"lines"`
	Since  time.Time `json:"since"`
	// Domain is the one that rejects them, and Class the class of the reason.
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
	// TooLarge describes the excess of a Service above the limit, and what is left out.
	TooLarge string `json:"tooLarge,omitempty" terminal:"lines"`
}

// TimelineMax bounds the changes that are remembered of one Service.
const TimelineMax = 20

// Change is one change of a Service in one domain.
type Change struct {
	Domain   string `json:"domain"`
	Revision string `json:"revision"`
	// Causes are what changed: "service", "endpoints", "node", "start" (of the actor), "drain" or "observed".
	Causes []string `json:"causes"`
	// Outcome is Applied or Held.
	Outcome State `json:"outcome"`
	// Received is when the source delivered the oldest cause. For a cause that comes from no source
	// it is when the actor saw it.
	Received time.Time `json:"received"`
	// The other moments are in microseconds after Received. TriggerMicros is negative: the cause
	// was in the cluster before. Zero means unknown.
	TriggerMicros  int64 `json:"triggerMicros,omitempty"`
	SeenMicros     int64 `json:"seenMicros"`
	RenderedMicros int64 `json:"renderedMicros"`
	BatchedMicros  int64 `json:"batchedMicros"`
	DoneMicros     int64 `json:"doneMicros"`
	// Batch is the number of the domain's batch; 0 if nothing had to be written.
	Batch uint64 `json:"batch,omitempty"`
	// Endpoints may get new connections after this change, in the family of the domain.
	Endpoints int `json:"endpoints"`
}
