// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"sync"
	"time"
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
	// incidentGap ends a series: a failure after such a pause begins a new one. No retry waits as long.
	incidentGap = 2 * time.Minute
	// incidentRepeat is how often a series that lasts is reported.
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
