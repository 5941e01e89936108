// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"

	"github.com/moby/ipvs"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
)

// Meter reads the kernel's counters. The zero value is ready to use. Only one goroutine at a time may use it.
//
// moby/ipvs reads connections and packets with 32 bits, and bytes with 64. The Meter extends connections to 64 bits,
// provided that fewer than 2³¹ are added between two readings. It does not read packets, which no metric shows.
type Meter struct {
	servers map[service.Frontend]traffic.Counts
	reals   map[traffic.Pair]traffic.Counts
}

// Read returns the kernel's counters of each virtual server since its creation, from one list. With endpoints, it also
// returns those of each real server, from one list per virtual server. The kernel updates the sums every two seconds,
// but not at all while the sysctl net.ipv4.vs.run_estimation is 0.
//
// Read opens a separate socket, so that a reader of metrics never delays the writer. The caller must not change the
// maps, which the next call reads.
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

// countsOf returns the counts of a reading. It derives the upper half of connections from the previous reading.
func countsOf(s ipvs.SvcStats, before traffic.Counts) traffic.Counts {
	now := traffic.Counts{Connections: uint64(s.Connections), BytesIn: s.BytesIn, BytesOut: s.BytesOut}
	upper, lower := before.Connections>>32, uint32(before.Connections)
	switch {
	case now.BytesIn < before.BytesIn, now.BytesOut < before.BytesOut:
		return now // the server was created again
	case s.Connections < lower && lower < 1<<31:
		return now // the same, but it has more bytes than before
	case s.Connections < lower:
		upper++
	}
	now.Connections |= upper << 32
	return now
}
