package metrics

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// records has one record per Service that has an actor, the node's own included. It is as large as
// the directory, and forgets a Service when its actor ends.
//
// It is divided into shards with a lock each, so that a reader that copies it delays writers for
// the length of one shard at most.
type records struct {
	seed   maphash.Seed
	shards [shardCount]shard
}

// shardCount keeps a shard of 50,000 Services below 1,000 records.
const shardCount = 64

type shard struct {
	mu      sync.Mutex
	records map[service.Key]*record
	// draining has the Services with endpoints that drain. At any time these are few, and in most
	// modes there are none.
	draining map[service.Key]service.PerFamily[int]
}

func newRecords() *records {
	r := &records{seed: maphash.MakeSeed()}
	for i := range r.shards {
		r.shards[i].records = map[service.Key]*record{}
	}
	return r
}

// locked returns the shard of a Service, locked.
func (r *records) locked(key service.Key) *shard {
	s := &r.shards[maphash.Comparable(r.seed, key)%shardCount]
	s.mu.Lock()
	return s
}

// start records that an actor runs, and reports whether it has failed before. If its Service was
// gone in between, it is a new one.
func (r *records) start(key service.Key) (again bool) {
	s := r.locked(key)
	defer s.mu.Unlock()
	known := s.records[key]
	if known == nil {
		known = newRecord()
		s.records[key] = known
	} else {
		known.restarts++
		// A new incarnation reports again what drains, and whether the Service is too large.
		delete(s.draining, key)
		if known.failures != nil {
			known.ownFailures().large = ""
		}
		again = true
	}
	known.running = true
	return again
}

// update changes a record under its lock. A Service without an actor has none.
func (r *records) update(key service.Key, change func(*record)) {
	s := r.locked(key)
	defer s.mu.Unlock()
	if known := s.records[key]; known != nil {
		change(known)
	}
}

// end forgets a Service, and returns its last record.
func (r *records) end(key service.Key) (last record, known bool) {
	s := r.locked(key)
	defer s.mu.Unlock()
	found := s.records[key]
	if found == nil {
		return record{}, false
	}
	delete(s.records, key)
	delete(s.draining, key)
	return *found, true
}

// drains records how many endpoints of a Service keep only the connections they have.
func (r *records) drains(key service.Key, family service.Family, endpoints int) {
	s := r.locked(key)
	defer s.mu.Unlock()
	if s.records[key] == nil {
		return
	}
	now := s.draining[key]
	now[family] = endpoints
	if now == (service.PerFamily[int]{}) {
		delete(s.draining, key)
		return
	}
	if s.draining == nil {
		s.draining = map[service.Key]service.PerFamily[int]{}
	}
	s.draining[key] = now
}

// len returns the number of actors.
func (r *records) len() int {
	n := 0
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		n += len(s.records)
		s.mu.Unlock()
	}
	return n
}

// row is a copy of one Service's record.
type row struct {
	key service.Key
	record
	draining service.PerFamily[int]
}

// row returns a copy of one record.
func (r *records) row(key service.Key) (found row, known bool) {
	s := r.locked(key)
	defer s.mu.Unlock()
	if of := s.records[key]; of != nil {
		return row{key, *of, s.draining[key]}, true
	}
	return row{}, false
}

// copy returns the wanted records, in no order.
func (r *records) copy(wanted func(service.Key) bool) []row {
	var rows, some []row
	for i := range r.shards {
		s := &r.shards[i]
		some = some[:0] // so that a long list never grows under a lock
		s.mu.Lock()
		for key, known := range s.records {
			if wanted(key) {
				some = append(some, row{key, *known, s.draining[key]})
			}
		}
		s.mu.Unlock()
		rows = append(rows, some...)
	}
	return rows
}

// record is the history of one Service while it has an actor. There can be tens of thousands: what
// only few of them need is behind a pointer.
type record struct {
	// revision is the newest that the kernel has, committed when it got it, in nanoseconds since
	// 1970; both are zero before that. commits counts them, over all families.
	revision  service.Revision
	committed int64
	commits   uint32
	restarts  uint32
	// triggered and received are how long changes took, from their cause in the cluster and from
	// their receipt.
	triggered, received latency
	endpoints           service.PerFamily[endpointCounts]
	unserved            service.PerFamily[unserved]
	// flowsDeleted counts the stale conntrack entries that were deleted.
	flowsDeleted uint32
	// served says in which families the Service has ports.
	served  service.PerFamily[bool]
	running bool
	// balancing is the algorithm of the last view that any family has.
	balancing service.Balancing
	// failures is nil for an actor that has never failed, and whose Service was never too large.
	failures *failures
	// timeline is nil before the first change. Copies of the record share it: read it under the
	// lock only.
	timeline *timeline
}

// failures is the history of an actor that has failed. It is replaced, never changed, because
// copies of the record share it.
type failures struct {
	count uint32
	// kind, text and at describe the last failure.
	kind, text string
	at         time.Time
	// parkedUntil is zero unless the actor is parked.
	parkedUntil time.Time
	// large says what the Service asks for if that is too much.
	large string
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

func (l *latency) measured() bool { return l.Longest >= 0 }

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

// failureMax bounds the text of a failure, in bytes: a panic may carry anything.
const failureMax = 256

// failed records a failure of the actor.
func (r *record) failed(at time.Time, kind, text string) {
	r.running = false
	f := r.ownFailures()
	f.count++
	// A clone, so that the rest of a long text can be freed.
	f.kind, f.at = kind, at
	f.text = strings.ToValidUTF8(strings.Clone(text[:min(len(text), failureMax)]), "")
}

// ownFailures gives the record failures that no copy shares, and returns them.
func (r *record) ownFailures() *failures {
	own := &failures{}
	if r.failures != nil {
		*own = *r.failures
	}
	r.failures = own
	return own
}

// The states of an actor.
const (
	StateRunning    = "running"
	StateRestarting = "restarting"
	StateParked     = "parked"
)

func (r *record) state() string {
	switch {
	case r.running:
		return StateRunning
	case r.failures != nil && !r.failures.parkedUntil.IsZero():
		return StateParked
	default:
		return StateRestarting
	}
}

// endpointCounts are the endpoints of a Service in one family: addresses and ports, summed over its
// service ports.
type endpointCounts struct {
	// Local and Remote may get new connections: ready ones, or, if none is, those that still serve
	// while they terminate.
	Local  uint32
	Remote uint32
	// Established only keep the flows that they have (UDP, where it matters).
	Established uint32
}

func countEndpoints(ports []service.PortView) (endpoints endpointCounts, lacking unserved) {
	for i := range ports {
		p := &ports[i]
		reachable := p.Reachable()
		for j := range reachable {
			if reachable[j].Local {
				endpoints.Local++
			} else {
				endpoints.Remote++
			}
		}
		endpoints.Established += uint32(max(0, len(p.Serving)-len(reachable)))
		lacking.note(p)
	}
	return endpoints, lacking
}

// unserved counts the ports of one Service and family whose traffic policy is Local and finds no
// endpoint on this node, although there is one elsewhere.
type unserved struct {
	internal, external uint16
}

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

// unservedCounts are the sums over all Services.
type unservedCounts struct {
	internal, external atomic.Int64
}

// replace exchanges one Service's share.
func (c *unservedCounts) replace(before, after unserved) {
	c.internal.Add(int64(after.internal) - int64(before.internal))
	c.external.Add(int64(after.external) - int64(before.external))
}
