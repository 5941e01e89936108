package metrics

import (
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// record is what is remembered about one Service while it has an actor. There may
// be tens of thousands: what only few of them need is in trouble.
type record struct {
	// revision is the newest that the kernel has, committed when it got it, in
	// nanoseconds since 1970; both are zero before that. commits counts them,
	// over all families.
	revision  service.Revision
	committed int64
	commits   uint32
	restarts  uint32
	// triggered and received measure how long changes took, from their cause in
	// the cluster and from their receipt.
	triggered, received latency
	endpoints           service.PerFamily[endpointCounts]
	unserved            service.PerFamily[unserved]
	// flowsDeleted counts the stale conntrack entries that were removed.
	flowsDeleted uint32
	// served tells in which families the Service has ports.
	served  service.PerFamily[bool]
	running bool
	// trouble is nil for an actor that has never failed.
	trouble *trouble
}

// trouble is what is remembered about an actor that has failed. It is replaced,
// never changed: copies of the record share it.
type trouble struct {
	failures uint32
	// kind, words and at describe the last failure.
	kind, words string
	at          time.Time
	// parkedUntil is zero unless the actor is parked.
	parkedUntil time.Time
}

// wordsMax bounds what is kept of an error, in bytes: a panic may carry anything.
const wordsMax = 256

// latency is the last and the longest of some durations, in seconds. It has been
// measured when longest is not negative.
type latency struct {
	last, longest float32
}

var unmeasured = latency{-1, -1}

func (l *latency) note(d time.Duration) {
	if d < 0 {
		return
	}
	l.last = float32(d.Seconds())
	l.longest = max(l.longest, l.last)
}

func (l latency) measured() bool { return l.longest >= 0 }

func newRecord() *record { return &record{triggered: unmeasured, received: unmeasured} }

// applied takes note that the kernel has a revision. The families answer each for
// itself.
func (r *record) applied(at time.Time, revision service.Revision, triggered, received time.Duration) {
	if revision.Compare(r.revision) > 0 {
		r.revision = revision
	}
	r.committed = max(r.committed, at.UnixNano())
	r.commits++
	r.triggered.note(triggered)
	r.received.note(received)
}

// failed takes note of a failure of the actor.
func (r *record) failed(at time.Time, kind, words string) {
	r.running = false
	t := r.inTrouble()
	t.failures++
	// A copy, so that the rest of a long text can be freed.
	t.kind, t.words, t.at = kind, strings.ToValidUTF8(strings.Clone(words[:min(len(words), wordsMax)]), ""), at
}

// inTrouble gives the record a trouble of its own to write on.
func (r *record) inTrouble() *trouble {
	fresh := &trouble{}
	if r.trouble != nil {
		*fresh = *r.trouble
	}
	r.trouble = fresh
	return fresh
}

// The states of an actor.
const (
	stateRunning = "running"
	stateWaiting = "waiting"
	stateParked  = "parked"
)

func (r *record) state() string {
	switch {
	case r.running:
		return stateRunning
	case r.trouble != nil && !r.trouble.parkedUntil.IsZero():
		return stateParked
	default:
		return stateWaiting
	}
}
