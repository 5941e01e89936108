// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"time"

	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/observe/metrics"
	"github.com/sluice-proxy/sluice/service"
)

// relayed returns the traffic that userspace mode forwarded for a Service.
func (l *lifetime) relayed(key service.Key) service.PerFamily[*traffic.ServiceTally] {
	return l.forwarders.Registry().Traffic(key)
}

// relayTotals returns the traffic that userspace mode forwarded since it began.
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
