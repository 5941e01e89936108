package localport

import "sync/atomic"

// Stats are the numbers of a writer. Those of the first group are of now, the
// others count from the writer's start.
type Stats struct {
	// Listeners are open; Connections (TCP) and Sessions (UDP) are under way.
	Listeners, Connections, Sessions int64

	// ConnectionsAccepted counts all, ConnectionsRefused those that were reset
	// because of a bound, ConnectionsUnreachable those that were reset because
	// the target did not accept.
	ConnectionsAccepted, ConnectionsRefused, ConnectionsUnreachable uint64
	// SessionsOpened counts all, SessionsEvicted those that had to make room,
	// SessionsRefused those that the target or the way to it refused (ICMP).
	SessionsOpened, SessionsEvicted, SessionsRefused uint64
	// DatagramsDropped could not be passed on.
	DatagramsDropped uint64
	// BytesToTargets and BytesToClients are payload. A TCP connection counts
	// when a direction ends.
	BytesToTargets, BytesToClients uint64
	// Failures were reported.
	Failures uint64
}

// counters are what Stats are read from.
type counters struct {
	listeners, connections, sessions      atomic.Int64
	accepted, refused, unreachable        atomic.Uint64
	opened, evicted, sessionsRefused      atomic.Uint64
	dropped, toTargets, toClients, failed atomic.Uint64
}

func (c *counters) stats() Stats {
	return Stats{
		Listeners: c.listeners.Load(), Connections: c.connections.Load(), Sessions: c.sessions.Load(),
		ConnectionsAccepted: c.accepted.Load(), ConnectionsRefused: c.refused.Load(),
		ConnectionsUnreachable: c.unreachable.Load(),
		SessionsOpened:         c.opened.Load(), SessionsEvicted: c.evicted.Load(),
		SessionsRefused:  c.sessionsRefused.Load(),
		DatagramsDropped: c.dropped.Load(),
		BytesToTargets:   c.toTargets.Load(), BytesToClients: c.toClients.Load(),
		Failures: c.failed.Load(),
	}
}
