package manifest

import "time"

// debounce decides when to scan the directory after events: once it has been quiet for a
// moment, since editors write in several steps, but not later than a limit after the
// first event. It reads no clock.
//
// Invariant while waiting: first <= last, and due() <= first + limit.
type debounce struct {
	quiet, limit time.Duration
	first, last  time.Time
}

// touch records an event.
func (d *debounce) touch(now time.Time) {
	if d.first.IsZero() {
		d.first = now
	}
	d.last = now
}

// due returns when to scan; ok is false when there was no event.
func (d *debounce) due() (at time.Time, ok bool) {
	if d.first.IsZero() {
		return time.Time{}, false
	}
	at = d.last.Add(d.quiet)
	if limit := d.first.Add(d.limit); limit.Before(at) {
		at = limit
	}
	return at, true
}

// reset forgets the events after a scan.
func (d *debounce) reset() { d.first, d.last = time.Time{}, time.Time{} }
