package daemon

import (
	"net/netip"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/observe/metrics"
	"github.com/sluice-proxy/sluice/service"
)

// relayed returns what userspace mode has passed on for a Service.
func (l *lifetime) relayed(key service.Key) (all service.PerFamily[*metrics.Relayed]) {
	for _, t := range l.forwarders.Registry().Traffic(key) {
		family := t.Port.Family
		if all[family] == nil {
			all[family] = &metrics.Relayed{Endpoints: make(map[netip.AddrPort]metrics.RelayedEndpoint)}
		}
		addRelayed(all[family], &t)
	}
	return all
}

// addRelayed adds what one Service port has passed on. Ports may share an endpoint.
func addRelayed(to *metrics.Relayed, t *userspace.Traffic) {
	to.Counts = to.Counts.Plus(countsOf(&t.Tally))
	to.Open += t.Open
	to.Failures += t.Failures
	to.Retries += t.Retries
	for why, n := range t.Refused {
		to.Refused[backend.Reasons[why]] += n
	}
	for at, tally := range t.Endpoints {
		e := to.Endpoints[at]
		to.Endpoints[at] = metrics.RelayedEndpoint{
			Counts: e.Plus(countsOf(&tally)), Open: e.Open + tally.Open, Failures: e.Failures + tally.Failures,
		}
	}
}

func countsOf(t *userspace.Tally) traffic.Counts {
	return traffic.Counts{Connections: t.Connections, BytesIn: t.ToTargets, BytesOut: t.ToClients}
}

// relayTotals returns what userspace mode has passed on since it began.
func (l *lifetime) relayTotals() metrics.Relay {
	made := metrics.Relay{
		Connects: make(map[float64]uint64), Open: map[string]uint64{"tcp": 0, "udp": 0},
		Refused: map[string]uint64{"limit": 0, relay.Unreachable.String(): 0, relay.Replaced.String(): 0},
	}
	var counts [len(relay.LatencyBounds) + 1]uint64
	var took time.Duration
	l.forwarders.Stats(func(s *relay.Stats) {
		s.Connects.AddTo(&counts, &took)
		made.Retries += s.ConnectionsRetried.Load()
		made.Open["tcp"] += uint64(s.Connections.Load())
		made.Open["udp"] += uint64(s.Sessions.Load())
		made.Refused["limit"] += s.ConnectionsRefused.Load()
		made.Refused[relay.Unreachable.String()] += s.ConnectionsUnreachable.Load()
		made.Refused[relay.Replaced.String()] += s.SessionsEvicted.Load()
	})
	for i, n := range counts {
		made.Accepted += n
		if i < len(relay.LatencyBounds) {
			made.Connects[relay.LatencyBounds[i]] = made.Accepted
		}
	}
	made.Seconds = took.Seconds()
	return made
}
