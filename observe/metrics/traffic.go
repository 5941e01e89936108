// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
)

// counted is what was counted of Services; nil in a family in which that is unknown.
type counted map[service.Key]service.PerFamily[*traffic.ServiceTally]

// sum adds up the readings by Service. It ignores frontends without an owner. The frontend of a node port has no
// address, or each address of the node.
func (m *Metrics) sum(readings service.PerFamily[*traffic.Reading]) counted {
	sums := counted{}
	for family, r := range readings {
		if r == nil {
			continue
		}
		of := func(f service.Frontend) *traffic.ServiceTally {
			key, ok := m.config.Owner(service.Family(family), f)
			if !ok {
				return nil
			}
			all := sums[key]
			if all[family] == nil {
				all[family] = &traffic.ServiceTally{HasBytes: r.Bytes}
				sums[key] = all
			}
			return all[family]
		}
		for f, at := range r.Frontends {
			if sum := of(f); sum != nil {
				sum.At = sum.At.Plus(at)
			}
		}
		for pair, counts := range r.Endpoints {
			if sum := of(pair.Frontend); sum != nil {
				if sum.Endpoints == nil {
					sum.Endpoints = make(map[netip.AddrPort]traffic.Tally)
				}
				sum.Endpoints[pair.Endpoint] = sum.Endpoints[pair.Endpoint].Plus(traffic.Tally{At: traffic.At{Counts: counts}})
			}
		}
	}
	return sums
}

// eachCounted visits what was counted of a Service in each family in which that is known.
func (a *answer) eachCounted(key service.Key, visit func(family string, c *traffic.ServiceTally)) {
	all := a.counted[key]
	for _, family := range service.Families {
		if c := all[family]; c != nil {
			visit(family.String(), c)
		}
	}
}

// endpointsMax bounds the endpoints of one Service in one family that have metrics.
const endpointsMax = 1000

// eachEndpoint visits what there is by endpoint, in the order of the addresses.
func eachEndpoint[T any](of map[netip.AddrPort]T, visit func(endpoint string, v T)) {
	addrs := slices.SortedFunc(maps.Keys(of), netip.AddrPort.Compare)
	for _, at := range addrs[:min(len(addrs), endpointsMax)] {
		visit(at.String(), of[at])
	}
}

// What belongs to no Service.
var (
	countedSinceDesc = prometheus.NewDesc(countedSinceName, countedSinceHelp, []string{labelFamily}, nil)
	unallocatedDesc  = prometheus.NewDesc(unallocatedName, unallocatedHelp, []string{labelFamily}, nil)
)

const (
	countedSinceName = "sluice_services_counted_since_timestamp_seconds"
	countedSinceHelp = "Time since which the counts of connections and refusals are complete (nftables mode)."
	unallocatedName  = "sluice_services_unallocated_refused_total"
	unallocatedHelp  = "Refused packets to ClusterIPs that no Service has (nftables mode)."
)

// collectReadings sends what belongs to no Service.
func (a *answer) collectReadings(to chan<- prometheus.Metric) {
	for family, r := range a.readings {
		if r == nil || r.Since.IsZero() {
			continue
		}
		name := service.Family(family).String()
		send(to, countedSinceDesc, prometheus.GaugeValue, float64(r.Since.UnixNano())/float64(time.Second), name)
		if a.mode == modeNFTables {
			send(to, unallocatedDesc, prometheus.CounterValue, float64(r.Unallocated), name)
		}
	}
}
