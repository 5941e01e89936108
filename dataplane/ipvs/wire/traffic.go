package wire

import (
	"context"
	"fmt"

	"github.com/moby/ipvs"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
)

// Meter reads what the kernel has counted. The zero value is ready. One goroutine uses it.
//
// moby/ipvs reads connections and packets with 32 bits, and bytes with 64. The meter extends connections from one
// reading to the next, as long as there are fewer than 2³¹ in between. Nobody needs packets.
type Meter struct {
	servers map[service.Frontend]traffic.Counts
	reals   map[traffic.Pair]traffic.Counts
}

// Read returns what was counted since each virtual server was made, from one list, and with endpoints since each real
// server was made, from one list per virtual server. The kernel sums its counters up every two seconds, and not at all
// while the sysctl net.ipv4.vs.run_estimation is 0.
//
// It opens a separate socket, so that a reader of metrics never delays the service. Nobody changes the result.
func (m *Meter) Read(ctx context.Context, endpoints bool) (map[service.Frontend]traffic.Counts, map[traffic.Pair]traffic.Counts, error) {
	s, err := OpenServers()
	if err != nil {
		return nil, nil, err
	}
	defer s.Close() // nothing can be lost
	servers, reals := map[service.Frontend]traffic.Counts{}, map[traffic.Pair]traffic.Counts{}
	err = s.services(ctx, func(of Service, l *ipvs.Service) {
		servers[of.Frontend] = countsOf(l.Stats, m.servers[of.Frontend])
	})
	for f := range servers {
		if !endpoints || err != nil {
			break
		}
		err = s.destinations(ctx, f, func(d Destination, l *ipvs.Destination) {
			pair := traffic.Pair{Frontend: f, Endpoint: d.Addr}
			reals[pair] = countsOf(ipvs.SvcStats(l.Stats), m.reals[pair])
		})
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the counters of virtual servers: %w", err)
	}
	m.servers, m.reals = servers, reals
	return servers, reals, nil
}

// countsOf returns the counts of a reading, with the upper half of connections that follows from the reading before.
func countsOf(s ipvs.SvcStats, before traffic.Counts) traffic.Counts {
	now := traffic.Counts{Connections: uint64(s.Connections), BytesIn: s.BytesIn, BytesOut: s.BytesOut}
	upper, lower := before.Connections>>32, uint32(before.Connections)
	switch {
	case now.BytesIn < before.BytesIn, now.BytesOut < before.BytesOut:
		return now // it was made again
	case s.Connections < lower && lower < 1<<31:
		return now // and had fewer connections since, but more bytes
	case s.Connections < lower:
		upper++
	}
	now.Connections |= upper << 32
	return now
}
