package observe

import (
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/service"
)

// Incidents turns failures that repeat into few lines: one when they begin, one every ten minutes
// while they last, and one when they are over. The zero value is ready to use.
type Incidents struct {
	mu   sync.Mutex
	open map[string]*incident
	now  func() time.Time // nil means time.Now
}

// incident is a series of failures of one thing.
type incident struct {
	began, last, told time.Time
	failures          int
	// over says that the thing has succeeded since the last failure.
	over bool
}

const (
	// incidentGap ends a series: a failure after such a pause is news. No retry waits as long.
	incidentGap = 2 * time.Minute
	// incidentRepeat is when a series that lasts is told again.
	incidentRepeat = 10 * time.Minute
)

func (i *Incidents) time() time.Time {
	if i.now == nil {
		return time.Now()
	}
	return i.now()
}

// Failed notes a failure. It reports whether to tell it, and returns its number in the series.
func (i *Incidents) Failed(what string) (tell bool, failures int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.time()
	one := i.open[what]
	if one == nil || now.Sub(one.last) > incidentGap {
		one = &incident{began: now}
		if i.open == nil {
			i.open = map[string]*incident{}
		}
		i.open[what] = one
	}
	one.failures++
	one.last, one.over = now, false
	if tell = one.told.IsZero() || now.Sub(one.told) >= incidentRepeat; tell {
		one.told = now
	}
	return tell, one.failures
}

// Succeeded notes a success. If it ends a series, it reports that, with the number of failures and
// the time since the first one.
func (i *Incidents) Succeeded(what string) (failures int, lasted time.Duration, over bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	one := i.open[what]
	if one == nil || one.over {
		return 0, 0, false
	}
	one.over = true
	return one.failures, i.time().Sub(one.began), true
}

// quarantines knows why Services are quarantined, because each is tried again from time to time.
type quarantines struct {
	mu  sync.Mutex
	why map[quarantined]string
}

type quarantined struct {
	domain string
	key    service.Key
}

// began notes a quarantine. It reports whether it is new, or has a new reason.
func (q *quarantines) began(e aggregator.Quarantined) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	one := quarantined{e.Domain, e.Key}
	if before, known := q.why[one]; known && before == e.Reason {
		return false
	}
	if q.why == nil {
		q.why = map[quarantined]string{}
	}
	q.why[one] = e.Reason
	return true
}

// ended notes that a Service is accepted.
func (q *quarantines) ended(e aggregator.Freed) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.why, quarantined{e.Domain, e.Key})
}
