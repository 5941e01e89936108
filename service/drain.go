package service

import "time"

// Drain is how long connections to an endpoint stay open after it left a Service. The zero value leaves that to
// the mode.
type Drain struct {
	Limited bool
	After   time.Duration
}

// DrainMax is the longest time that a Service may ask for.
const DrainMax = 24 * time.Hour

// Or returns the time, or that of the mode.
func (d Drain) Or(mode time.Duration) time.Duration {
	if d.Limited {
		return d.After
	}
	return mode
}
