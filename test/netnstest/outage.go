// SPDX-License-Identifier: Apache-2.0

package netnstest

import (
	"time"
)

// Outage is a time in which exchanges with some targets may fail: a fault destroys them by its nature.
type Outage[T any] struct {
	What     string
	Hits     func(T, Exchange) bool
	From, To time.Time // To is zero until it ends
}

// Covers reports whether the outage may be why an exchange failed: it hits the exchange and overlaps with it, or with
// the silence before it.
func (o *Outage[T]) Covers(to T, e Exchange) bool {
	began := e.Began
	if !e.Silent.IsZero() {
		began = e.Silent
	}
	return o.Hits(to, e) && e.Ended.After(o.From) && (o.To.IsZero() || began.Before(o.To))
}
