// SPDX-License-Identifier: Apache-2.0

package book

import (
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
)

// shardCount keeps a shard of 50,000 Services below 1,000 records.
const shardCount = 64

// shard has some of the Services, the node's own actor included. It forgets a Service when its actor ends.
type shard struct {
	mu      sync.Mutex
	records map[service.Key]*record
	// rare has what only few of these Services have.
	rare map[service.Key]*rare
}

// locked returns the shard of a Service, locked.
func (b *Book) locked(key service.Key) *shard {
	s := &b.shards[maphash.Comparable(b.seed, key)%shardCount]
	s.mu.Lock()
	return s
}

// start records that an actor runs. A Service that was deleted in between counts as a new one.
func (b *Book) start(key service.Key) {
	s := b.locked(key)
	defer s.mu.Unlock()
	known := s.records[key]
	if known == nil {
		known = newRecord()
		s.records[key] = known
	} else {
		known.restarts++
		// A new incarnation reports again whether the Service is too large.
		s.updateRare(key, known, func(_ *record, x *rare) { x.large = state.Affected{} })
	}
	known.running = true
}

// update changes a record under its lock. A Service without an actor has none.
func (b *Book) update(key service.Key, change func(*record)) {
	s := b.locked(key)
	defer s.mu.Unlock()
	if known := s.records[key]; known != nil {
		change(known)
	}
}

// updateRare changes a record and what is rare under their lock.
func (b *Book) updateRare(key service.Key, change func(*record, *rare)) {
	s := b.locked(key)
	defer s.mu.Unlock()
	if known := s.records[key]; known != nil {
		s.updateRare(key, known, change)
	}
}

func (s *shard) updateRare(key service.Key, known *record, change func(*record, *rare)) {
	own := s.rare[key].copy()
	if change(known, &own); own == (rare{}) {
		delete(s.rare, key)
		return
	}
	s.rare[key] = &own
}

// end forgets a Service.
func (b *Book) end(key service.Key) {
	s := b.locked(key)
	defer s.mu.Unlock()
	delete(s.records, key)
	delete(s.rare, key)
}

// record is the history of one Service while it has an actor. There can be tens of thousands.
type record struct {
	// revision is the newest that the kernel has, and committed is when the kernel got it, in nanoseconds since 1970;
	// both are zero before that. commits counts the applied revisions of all families.
	revision  service.Revision
	committed int64
	commits   uint32
	restarts  uint32
	// triggered and received are how long changes took, from their cause in the cluster and from
	// their receipt.
	triggered, received latency
	families            service.PerFamily[state.FamilyEndpoints]
	unserved            service.PerFamily[unserved]
	// flowsDeleted counts the stale conntrack entries that were deleted.
	flowsDeleted uint32
	running      bool
	// balancing is the algorithm of the last view that any family has.
	balancing service.Balancing
	// timeline is nil before the first change. Copies of the record share it: read it under the
	// lock only.
	timeline *timeline
}

// rare is what only few Services have. It is replaced, never changed, because copies share it.
type rare struct {
	// failures counts those of the actor. kind, text and at describe the last one.
	failures   uint32
	kind, text string
	at         time.Time
	// parked says since when and why the actor is parked, and parkedUntil until when; zero if it is not.
	parked      state.Affected
	parkedUntil time.Time
	// large says since when the Service asks for too much, and for what; zero if it does not.
	large state.Affected
}

// copy returns a copy; nil is zero.
func (x *rare) copy() (own rare) {
	if x != nil {
		own = *x
	}
	return own
}

// failureMax bounds the text of a failure, in bytes: a panic may carry anything.
const failureMax = 256

// failed records a failure of the actor.
func (x *rare) failed(at time.Time, kind, text string) {
	x.failures++
	// A clone, so that the rest of a long text can be freed.
	x.kind, x.at = kind, at
	x.text = strings.ToValidUTF8(strings.Clone(text[:min(len(text), failureMax)]), "")
}

// latency has the last and the longest of some durations, in seconds. They are negative until
// something has been measured.
type latency struct {
	Last    float32
	Longest float32
}

func (l *latency) note(d time.Duration) {
	if d < 0 {
		return
	}
	l.Last = float32(d.Seconds())
	l.Longest = max(l.Longest, l.Last)
}

func newRecord() *record {
	return &record{triggered: latency{-1, -1}, received: latency{-1, -1}}
}

// applied records that the kernel has a revision. Each family reports its own.
func (r *record) applied(at time.Time, revision service.Revision, triggered, received time.Duration) {
	if revision.Compare(r.revision) > 0 {
		r.revision = revision
	}
	r.committed = max(r.committed, at.UnixNano())
	r.commits++
	r.triggered.note(triggered)
	r.received.note(received)
}

// note adds a change to the timeline.
func (r *record) note(s step) {
	if r.timeline == nil {
		r.timeline = &timeline{}
	}
	r.timeline.add(s)
}

// state returns the state of the actor.
func (r *record) state(x *rare) string {
	switch {
	case r.running:
		return state.ActorRunning
	case x != nil && !x.parked.Since.IsZero():
		return state.ActorParked
	default:
		return state.ActorRestarting
	}
}

// countEndpoints counts the endpoints of one family.
func countEndpoints(ports []service.PortView) (of state.FamilyEndpoints, lacking unserved) {
	of.Served = len(ports) > 0
	for i := range ports {
		p := &ports[i]
		reachable := p.Reachable()
		for j := range reachable {
			if reachable[j].Local {
				of.Local++
			} else {
				of.Remote++
			}
		}
		of.Established += uint32(max(0, len(p.Serving)-len(reachable)))
		lacking.note(p)
	}
	return of, lacking
}

// unserved counts the ports of one Service and family whose traffic policy is Local and finds no endpoint on this node,
// although there is one elsewhere.
type unserved struct{ internal, external uint16 }

// note counts a port. A port without any usable endpoint does not count: the policy is not to
// blame.
func (u *unserved) note(p *service.PortView) {
	if !p.HasAny || len(p.Local) > 0 {
		return
	}
	if p.InternalLocal {
		u.internal++
	}
	if p.ExternalLocal {
		u.external++
	}
}

// Totals are sums over all actors.
type Totals struct {
	Actors state.Actors
	// Internal and External count ports whose internal or external traffic policy is Local and finds no endpoint on
	// this node, although there is one elsewhere.
	Internal, External service.PerFamily[int]
	// Balanced counts Services, by the number of the algorithm.
	Balanced []int
}

// Totals adds up the records. It visits all of them.
func (b *Book) Totals() Totals {
	t := Totals{Balanced: make([]int, len(service.Balancings()))}
	for i := range b.shards {
		b.shards[i].addTo(&t)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t.Actors.Abandoned = len(b.stuck)
	return t
}

func (s *shard) addTo(t *Totals) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, r := range s.records {
		switch r.state(s.rare[key]) {
		case state.ActorRunning:
			t.Actors.Running++
		case state.ActorParked:
			t.Actors.Parked++
		default:
			t.Actors.Restarting++
		}
		for family, lacking := range r.unserved {
			t.Internal[family] += int(lacking.internal)
			t.External[family] += int(lacking.external)
		}
		t.Balanced[r.balancing]++
	}
}
