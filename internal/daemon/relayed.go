package daemon

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/observe/metrics"
	"github.com/sluice-proxy/sluice/service"
)

// relayed returns what userspace mode has passed on for a Service.
func (l *lifetime) relayed(key service.Key) (all service.PerFamily[*metrics.Relayed]) {
	var endpoints service.PerFamily[map[netip.AddrPort]*metrics.RelayedEndpoint]
	for _, t := range l.forwarders.Registry().Traffic(key) {
		family := t.Port.Family
		if all[family] == nil {
			all[family] = &metrics.Relayed{Refused: make(map[string]uint64)}
			endpoints[family] = make(map[netip.AddrPort]*metrics.RelayedEndpoint)
		}
		addRelayed(all[family], endpoints[family], &t)
	}
	for family, made := range all {
		if made == nil {
			continue
		}
		addrs := slices.SortedFunc(maps.Keys(endpoints[family]), netip.AddrPort.Compare)
		for _, at := range addrs[:min(len(addrs), metrics.RelayedEndpointsMax)] {
			made.Endpoints = append(made.Endpoints, *endpoints[family][at])
		}
	}
	return all
}

// addRelayed adds what one Service port has passed on. Ports may share an endpoint.
func addRelayed(to *metrics.Relayed, endpoints map[netip.AddrPort]*metrics.RelayedEndpoint, t *userspace.Traffic) {
	addTally(&to.Counters, &t.Tally)
	to.Open += t.Open
	to.Failures += t.Failures
	to.Retries += t.Retries
	for why, n := range t.Refused {
		to.Refused[relay.Refusal(why).String()] += n
	}
	for at, tally := range t.Endpoints {
		e := endpoints[at]
		if e == nil {
			e = &metrics.RelayedEndpoint{Endpoint: at}
			endpoints[at] = e
		}
		addTally(&e.Counters, &tally)
		e.Open += tally.Open
		e.Failures += tally.Failures
	}
}

func addTally(to *metrics.Counters, t *userspace.Tally) {
	to.Connections += t.Connections
	to.BytesIn += t.ToTargets
	to.BytesOut += t.ToClients
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
