package localport

import "time"

// household is what all listeners of a writer share.
type household struct {
	*sockets
	crew     *crew
	counters counters
	// connections and sessions are the budgets of all listeners together, and
	// the others what each listener may have of them.
	connections, sessions                       *budget
	connectionsPerListener, sessionsPerListener int
	unreplied, replied                          time.Duration
}

func newHousehold(c Config) *household {
	h := &household{
		sockets:                &sockets{inside: c.Inside, dialTimeout: c.DialTimeout},
		connections:            newBudget(c.Connections, nil),
		sessions:               newBudget(c.Sessions, nil),
		connectionsPerListener: c.ConnectionsPerListener,
		sessionsPerListener:    c.SessionsPerListener,
		unreplied:              c.Unreplied, replied: c.Replied,
	}
	h.crew = newCrew(func(f Failure) {
		h.counters.failed.Add(1)
		c.Report(f)
	})
	return h
}
