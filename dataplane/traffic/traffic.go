// SPDX-License-Identifier: Apache-2.0

// Package traffic has the types for what a backend counts: new connections, refusals, packets and
// bytes, by frontend and by endpoint. They are the same in all modes, and plain values: a reading
// belongs to its caller.
package traffic

import (
	"net/netip"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// Counts are totals that only grow, as long as Reading.Since stays the same. Fields that a backend does
// not count are 0; Reading.Bytes is set if it counts bytes.
type Counts struct {
	// Connections are new connections: connections of TCP and SCTP, flows of UDP.
	Connections uint64
	// In is from clients to endpoints.
	PacketsIn, PacketsOut uint64
	BytesIn, BytesOut     uint64
}

// Plus returns the sum.
func (c Counts) Plus(other Counts) Counts {
	return Counts{
		Connections: c.Connections + other.Connections,
		PacketsIn:   c.PacketsIn + other.PacketsIn, PacketsOut: c.PacketsOut + other.PacketsOut,
		BytesIn: c.BytesIn + other.BytesIn, BytesOut: c.BytesOut + other.BytesOut,
	}
}

// Reason is why packets to a frontend were refused.
type Reason uint8

// The reasons. Their texts are values of labels and of filters of commands.
const (
	// NoEndpoints: the Service has no usable endpoint, or none on this node under the Local policy.
	NoEndpoints Reason = iota
	// SourceRange: the client is not in loadBalancerSourceRanges.
	SourceRange
	// Limit: userspace mode has reached a limit of connections.
	Limit
	// Unreachable: userspace mode could not connect to any endpoint.
	Unreachable
	// Reasons is their number.
	Reasons
)

var reasons = [Reasons]string{"no-endpoints", "source-range", "limit", "unreachable"}

// String returns the reason as one word.
func (r Reason) String() string { return reasons[r] }

// Refusals counts refused packets by reason. A TCP client sends one for each attempt, as long as it gets the refusal; a
// client whose packets are dropped repeats them.
type Refusals [Reasons]uint64

// Plus returns the sum.
func (r Refusals) Plus(other Refusals) Refusals {
	for i := range r {
		r[i] += other[i]
	}
	return r
}

// Total returns the sum over all reasons.
func (r Refusals) Total() (sum uint64) {
	for _, n := range r {
		sum += n
	}
	return sum
}

// At is what was counted at a frontend.
type At struct {
	Counts
	Refused Refusals
}

// Plus returns the sum.
func (a At) Plus(other At) At {
	return At{a.Counts.Plus(other.Counts), a.Refused.Plus(other.Refused)}
}

// Less returns what was counted since an earlier reading. A count that is smaller than before began
// again from 0.
func (a At) Less(before At) At {
	for _, count := range []struct {
		now  *uint64
		then uint64
	}{
		{&a.Connections, before.Connections},
		{&a.PacketsIn, before.PacketsIn}, {&a.PacketsOut, before.PacketsOut},
		{&a.BytesIn, before.BytesIn}, {&a.BytesOut, before.BytesOut},
	} {
		if *count.now >= count.then {
			*count.now -= count.then
		}
	}
	for i := range a.Refused {
		if a.Refused[i] >= before.Refused[i] {
			a.Refused[i] -= before.Refused[i]
		}
	}
	return a
}

// Tally is what was counted of a Service or at an endpoint. Values of userspace mode are 0 in the other modes.
type Tally struct {
	At
	// Open counts connections that are open now, Failures refused or unanswered connects, and Retries those failures
	// after which another endpoint was tried.
	Open, Failures, Retries uint64
}

// Plus returns the sum.
func (t Tally) Plus(other Tally) Tally {
	return Tally{t.At.Plus(other.At), t.Open + other.Open, t.Failures + other.Failures, t.Retries + other.Retries}
}

// ServiceTally is what was counted of a Service in one family.
type ServiceTally struct {
	// Tally is the sum, endpoints that have gone included.
	Tally
	// HasBytes is set if bytes are counted.
	HasBytes bool
	// Endpoints is nil if nothing is counted by endpoint.
	Endpoints map[netip.AddrPort]Tally
}

// Pair is an endpoint of a frontend.
type Pair struct {
	Frontend service.Frontend
	Endpoint netip.AddrPort
}

// Reading is what a backend has counted in one family.
type Reading struct {
	// Since is the time from which the counts are complete. It changes when counts were lost. It is zero if counts are
	// lower bounds.
	Since time.Time
	// Bytes is set if bytes are counted.
	Bytes bool
	// Frontends without an address are node ports. In iptables mode, one frontend of each service port has the
	// connections to all frontends of that port.
	Frontends map[service.Frontend]At
	// Endpoints is nil if connections are not counted by endpoint.
	Endpoints map[Pair]Counts
	// Unallocated counts refused packets to addresses of the ClusterIP ranges that no Service has.
	Unallocated uint64
}

// ReadingShare is the largest share of time that readings of what the kernel has counted take.
const ReadingShare = 0.02

// RestAfter returns when the next reading may begin after one that ends now, so that readings take a share of the time.
func RestAfter(began time.Time, share float64) time.Time {
	now := time.Now()
	return now.Add(time.Duration(float64(now.Sub(began)) * (1/share - 1)))
}
