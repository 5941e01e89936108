package dataplane

import "time"

// Earliest gives the earlier of two times; a zero time is no time. Whatever is
// coalesced keeps the time of its oldest part by this.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
