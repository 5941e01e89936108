package kernel_test

import (
	"encoding/binary"
	"flag"
	"math"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/slots"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

var packets = flag.Int("packets", 20_000, "datagrams of TestDistribution and TestDistributionByWeight, for each algorithm")

// chiMax has what χ² of so many endpoints exceeds with a probability of 10⁻⁶.
var chiMax = map[int]float64{3: 27.63, 10: 44.81}

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

// TestDistribution: connections reach ten endpoints as often as the algorithm says, by a χ² test.
func TestDistribution(t *testing.T) {
	const endpoints = 10
	for _, by := range []service.Balancing{service.Random, service.RoundRobin, service.LeastConnections, service.SourceHash, service.ConnectionHash} {
		b := newBackends(t, endpoints)
		b.balanced(by)
		shares := slices.Repeat([]float64{1}, endpoints)
		if by.Hashes() {
			shares = slotShares(b.view.Ports[service.IPv4][0].Cluster)
		}
		counts := b.counted(*packets)
		got := chi(counts, shares)
		t.Logf("%v: χ² %.2f of %v; at most %.2f", by, got, counts, chiMax[endpoints])
		if got > chiMax[endpoints] || by == service.RoundRobin && slices.Max(counts)-slices.Min(counts) > 1 {
			t.Errorf("%v: %v with χ² %.2f", by, counts, got)
		}
	}
}

// TestDistributionByPort is TestDistribution for a hash of the ports of one client.
func TestDistributionByPort(t *testing.T) {
	const endpoints = 10
	b := newBackends(t, endpoints)
	b.balanced(service.ConnectionHash)
	var from []netip.AddrPort
	for i := range min(*packets, 50_000) {
		from = append(from, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(2000+i)))
	}
	at, _ := b.chosen(from, bound)
	counts := make([]int, endpoints)
	for _, n := range at {
		counts[n]++
	}
	got := chi(counts, slotShares(b.view.Ports[service.IPv4][0].Cluster))
	t.Logf("χ² %.2f of %v; at most %.2f", got, counts, chiMax[endpoints])
	if got > chiMax[endpoints] {
		t.Errorf("%v with χ² %.2f", counts, got)
	}
}

// bound is a sender with a socket at the port of the client.
func bound(client netip.AddrPort, number uint32) (uint16, error) {
	conn, err := net.DialUDP("udp4", net.UDPAddrFromAddrPort(client), net.UDPAddrFromAddrPort(packetFrontend))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	_, err = conn.Write(binary.BigEndian.AppendUint32(nil, number))
	return client.Port(), err
}

// TestDistributionByWeight: with the weights 1, 3 and 6, shares pass a χ² test. Of a million connections, each share
// is exact to 1 %, and with a hash to 2 %.
func TestDistributionByWeight(t *testing.T) {
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
		if by.Hashes() || *packets < 1_000_000 {
			most = 0.02 // the noise of so few datagrams
		}
		if got > chiMax[len(weights)] || worst > most {
			t.Errorf("%v: %v", by, counts)
		}
	}
}
