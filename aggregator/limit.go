// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
)

// This file limits how long a write may last. Two limits apply: one while no other change waits for the end of the
// write, and a shorter one while others wait. Both follow the duration of usual writes. They grow while nothing lands,
// because a slow node looks like a Service that hangs.

// Liveness is how long a change may wait before a restart of the process is due. All limits follow from it: a Service
// that hangs must be found long before, because the next process would have to begin again.
const Liveness = time.Minute

const (
	// jobTimeout is the longest limit of a read or write: that of the first write of a large node.
	jobTimeout = 2 * Liveness

	// A write for which others wait may last as long as four usual writes, but at least writeMin, and at most writeLong
	// or two usual writes. One for which no others wait may last at least writeAlone.
	writeMin   = Liveness / 15
	writeLong  = Liveness / 4
	writeAlone = Liveness / 2

	// The same for one try of a bisection.
	tryMin  = Liveness / 120
	tryLong = Liveness / 15

	// While no others wait for it, a try of a Service that is known not to land may last from tryAlone to heldMax, and
	// every heldFull-th one jobTimeout.
	tryAlone = 5 * time.Second
	heldMax  = 40 * time.Second
	heldFull = 8

	// Before the first write of a process, the usual duration is unknown. So that write may last firstMin plus
	// firstEach for each change (far more than on an idle node), up to firstMax. This does not hold for a try of a
	// Service that is known not to land, which says nothing about the node.
	firstMin  = 5 * time.Second
	firstTry  = time.Second
	firstEach = 500 * time.Microsecond
	firstMax  = Liveness / 2

	// usualSize is the number of changes up to which writes are supposed to take the same time.
	usualSize = 100

	// Limits double with each write in a row that did not end in time, up to growthMax times. The upper bounds double
	// too after patienceMax such writes: so many Services hardly hang, so the node is slow.
	growthMax   = 10
	patienceMax = 9
)

// limits returns how long a write may last while others wait for it, and otherwise.
func (m *machine) limits(j *job) (shared, alone time.Duration) {
	usual := m.tries.usual * sizeOf(j.batch) / usualSize
	least, long, patience := writeMin, writeLong, m.tries.unlanded
	tries := j.purpose == try
	if tries {
		least, long, patience = tryMin, tryLong, max(patience, m.tries.bisection.current.misses)
	}
	patience = min(patience, growthMax)
	long = max(long, 2*usual) << min(max(0, m.tries.unlanded-patienceMax), growthMax)
	shared = min(max(least, min(4*usual, long))<<patience, long)
	if m.health.lastWrite.IsZero() && !(tries && m.knownNotToLand(m.tries.bisection.current.keys[0])) {
		first := firstMin
		if tries {
			first = firstTry // it follows a write that did not end, and the limits grow if none does
		}
		shared = max(shared, min(first+time.Duration(len(j.batch.Changes))*firstEach, firstMax)<<patience)
	}
	shared = min(shared, jobTimeout)
	if tries {
		return shared, m.aloneLimit(shared)
	}
	return shared, max(shared, writeAlone)
}

// aloneLimit returns how long the current try may last while no others wait for it. Each further try of a Service that
// is known not to land may last twice as long: it may have very many objects.
func (m *machine) aloneLimit(shared time.Duration) time.Duration {
	if g := &m.tries.bisection.current; m.knownNotToLand(g.keys[0]) {
		if g.misses%heldFull == 0 {
			return jobTimeout
		}
		return max(shared, min(tryAlone<<min(g.misses, growthMax), heldMax))
	}
	return shared
}

// begin begins a job. There is never a second one in flight.
func (m *machine) begin(now time.Time, j job) {
	j.limit = jobTimeout
	if j.batch != nil {
		j.shared, j.limit = m.limits(&j)
	}
	m.flight, m.out.begin = &flight{job: j, began: now}, &j
	if j.purpose == try {
		m.pending.progress = now
	}
	m.flight.awaited = j.batch != nil && (m.tries.proving || severalOwners(j.batch) || !m.tries.bisection.last())
}

// flight is the job that the writer carries out.
type flight struct {
	job
	began time.Time
	// awaited is set if others wait from the beginning. If not, others wait from the arrival of their fragments on.
	awaited bool
	// cut is set once the job was told to end.
	cut bool
}

// cutIfAwaited ends a write that lasts too long for others that wait for its end. It returns when to ask again; zero
// means after the next event.
func (m *machine) cutIfAwaited(now time.Time) time.Time {
	f := m.flight
	if f.batch == nil || f.cut {
		return time.Time{}
	}
	since := f.began
	if !f.awaited {
		if m.pending.arrived.IsZero() {
			return time.Time{}
		}
		since = laterOf(since, m.pending.arrived)
	}
	until := since.Add(f.shared)
	if now.Before(until) {
		return until
	}
	f.cut, m.out.cut = true, true
	return time.Time{}
}

// excused returns the time until which the write in flight excuses that changes wait: the write is within its limit,
// and follows no failed write. Zero means that nothing is excused.
func (m *machine) excused() time.Time {
	if m.flight == nil || m.flight.batch == nil || m.pacer.Failures() > 0 {
		return time.Time{}
	}
	return m.flight.began.Add(m.flight.limit)
}

// severalOwners reports whether a batch has changes of more than one Service.
func severalOwners(batch *dataplane.Batch) bool {
	for i := range batch.Changes {
		if batch.Changes[i].Owner != batch.Changes[0].Owner {
			return true
		}
	}
	return len(batch.Contributions) > 1
}

// sizeOf returns the number of changes in a batch, but usualSize at least.
func sizeOf(batch *dataplane.Batch) time.Duration {
	return time.Duration(max(usualSize, len(batch.Changes)))
}

// learn notes how long a write took. The duration of a rejected write is a lower bound for writes that land.
func (m *machine) learn(r *result) {
	took := r.receipt.Took * usualSize / sizeOf(r.batch)
	switch landed := r.receipt.Outcome == dataplane.Landed; {
	case landed || isRejection(r.receipt.Outcome):
		m.tries.unlanded = 0
		if took > max(tryMin, m.tries.usual) && !severalOwners(r.batch) {
			break // it says something about its Service, not about the node
		}
		if landed && r.receipt.Took > max(tryLong, 2*m.tries.usual) {
			m.tries.bisection.absolve()
		}
		if landed {
			m.tries.usual /= 2
		}
		m.tries.usual = max(took, m.tries.usual)
	case r.receipt.Took >= r.shared && !(r.purpose == try && m.knownNotToLand(m.tries.bisection.current.keys[0])):
		m.tries.unlanded++
	}
}
