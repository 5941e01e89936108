package faults

import "time"

// outage says what a fault destroys by its nature: new connections to the hit
// frontends, if they were begun before the end and were not over at the
// beginning.
type outage struct {
	what     string
	hits     func(target) bool
	sessions bool // hits what is established as well, as far as it was talking
	from, to time.Time
}

// excuses tells whether the outage is why an exchange failed.
func (o *outage) excuses(e exchange) bool {
	return o.hits(e.target) && (o.sessions || !e.session) && e.began.Before(o.to) && e.ended.After(o.from)
}
