// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"flag"
	"math"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/slots"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

var packets = flag.Int("packets", 5_000, "datagrams of TestDistribution and TestDistribution_ByWeight, for each algorithm")

// chiMax has what χ² of so many endpoints exceeds with a probability of 10⁻⁶.
var chiMax = map[int]float64{3: 27.63, 10: 44.81, 17: 59.48}

// chi returns χ² of counts that should have these shares.
func chi(counts []int, shares []float64) (sum float64) {
	total, whole := 0, 0.0
	for i := range counts {
		total += counts[i]
		whole += shares[i]
	}
	for i, n := range counts {
		want := float64(total) * shares[i] / whole
		sum += (float64(n) - want) * (float64(n) - want) / want
	}
	return sum
}

// counted sends datagrams, each as a new connection from another address, and counts them by endpoint. It empties
// the connection table now and then.
func (b *backends) counted(count int) []int {
	b.Helper()
	const part = 50_000
	counts := make([]int, len(b.sockets))
	from := sources(count)
	for begin := 0; begin < count; begin += part {
		at, _ := b.chosen(anyPorts(from[begin:min(begin+part, count)]), b.oneSocket())
		for _, n := range at {
			counts[n]++
		}
		check(b, netnstest.FlushConntrack(b.node))
	}
	return counts
}

// slotShares returns how many slots of the hash table each endpoint has.
func slotShares(endpoints []service.Endpoint) []float64 {
	shares := make([]float64, len(endpoints))
	for _, n := range slots.Table(endpoints, true, false) {
		shares[n]++
	}
	return shares
}

// TestDistribution: connections reach the endpoints as often as the algorithm specifies, by a χ² test. Tables of 17
// have empty slots.
func TestDistribution(t *testing.T) {
	for _, c := range []struct {
		by        service.Balancing
		endpoints int
	}{
		{service.Random, 17}, {service.RoundRobin, 10}, {service.LeastConnections, 10}, {service.SourceHash, 10},
		{service.ConnectionHash, 10},
	} {
		b := newBackends(t, c.endpoints)
		b.balanced(c.by)
		shares := slices.Repeat([]float64{1}, c.endpoints)
		if c.by.Hashes() {
			shares = slotShares(b.view.Ports[service.IPv4][0].Cluster)
		}
		counts := b.counted(*packets)
		got := chi(counts, shares)
		t.Logf("%v: χ² %.2f of %v; at most %.2f", c.by, got, counts, chiMax[c.endpoints])
		if got > chiMax[c.endpoints] || c.by == service.RoundRobin && slices.Max(counts)-slices.Min(counts) > 1 {
			t.Errorf("%v: %v with χ² %.2f", c.by, counts, got)
		}
	}
}

// TestDistribution_ByWeight: with the weights 1, 3 and 6, shares pass a χ² test, and are exact for round robin. Of a
// million connections, each share is exact to 1 %, and with a hash to 2 %.
func TestDistribution_ByWeight(t *testing.T) {
	weights := []float64{1, 3, 6}
	for _, by := range []service.Balancing{service.Random, service.RoundRobin, service.LeastConnections, service.ConnectionHash} {
		b := newBackends(t, len(weights))
		cluster := b.view.Ports[service.IPv4][0].Cluster
		for i := range weights {
			cluster[i].Weight = uint16(weights[i])
		}
		b.balanced(by)
		shares := weights
		if by.Hashes() {
			shares = slotShares(cluster)
		}
		counts := b.counted(*packets)
		worst := 0.0
		for i, n := range counts {
			worst = max(worst, math.Abs(float64(n)/float64(*packets)-weights[i]/10))
		}
		got := chi(counts, shares)
		t.Logf("%v: χ² %.2f of %v; at most %.2f; the largest error is %.3f %% of all connections", by, got, counts, chiMax[len(weights)], 100*worst)
		most := 0.01
		switch {
		case by == service.RoundRobin:
			most = 10 / float64(*packets) // less than one turn
		case *packets < 1_000_000:
			most = 0.05 // the noise of so few datagrams
		case by.Hashes():
			most = 0.02
		}
		if got > chiMax[len(weights)] || worst > most {
			t.Errorf("%v: %v", by, counts)
		}
	}
}
