// SPDX-License-Identifier: Apache-2.0

package service

import "time"

// Balancing is how the new connections of a Service choose among its endpoints.
type Balancing uint8

// The algorithms. An IPVS node uses its own scheduler for Random.
const (
	// Random chooses each endpoint with the same probability, or by its weight.
	Random Balancing = iota
	// RoundRobin chooses one endpoint after the other.
	RoundRobin
	// SourceHash sends all connections of a client address to one endpoint, which is the same on all nodes.
	SourceHash
	// ConnectionHash is like SourceHash, with a hash of the client's address and port.
	ConnectionHash
	// LeastConnections prefers endpoints with fewer open connections from this node.
	LeastConnections
)

var balancings = [...]string{Random: "random", RoundRobin: "roundRobin", SourceHash: "sourceHash", ConnectionHash: "connectionHash", LeastConnections: "leastConnections"}

// Balancings returns the names of all algorithms.
func Balancings() []string { return balancings[:] }

// ParseBalancing is the reverse of String.
func ParseBalancing(name string) (Balancing, bool) {
	for i, known := range balancings {
		if known == name {
			return Balancing(i), true
		}
	}
	return Random, false
}

// String returns the name of the algorithm, as in annotations.
func (b Balancing) String() string { return balancings[b] }

// Hashes reports whether a hash of the client selects the endpoint.
func (b Balancing) Hashes() bool { return b == SourceHash || b == ConnectionHash }

// HashedSlotsMin and HashedSlotsMax bound the tables of Services that hash. A table of HashedSlotsMin slots divides
// clients finely enough for a few endpoints. SlotsPerEndpoint is the number of slots of a table for each endpoint, up to
// HashedSlotsMax.
const (
	HashedSlotsMin, HashedSlotsMax = 1 << 11, 1 << 14
	SlotsPerEndpoint               = 8
)

// HashedSlots returns the number of slots in the table of a Service that hashes: a power of two.
func HashedSlots(endpoints int) int {
	size := HashedSlotsMin
	for size < HashedSlotsMax && size < SlotsPerEndpoint*endpoints {
		size *= 2
	}
	return size
}

// Weighted reports whether the endpoints have different weights.
func Weighted(endpoints []Endpoint) bool {
	for i := range endpoints {
		if endpoints[i].Share() != endpoints[0].Share() {
			return true
		}
	}
	return false
}

// TotalShare returns the sum of the shares of endpoints.
func TotalShare(endpoints []Endpoint) (total int) {
	for i := range endpoints {
		total += endpoints[i].Share()
	}
	return total
}

// Drain limits how long connections to an endpoint stay open after it left a Service. The zero value stands for the
// mode's default.
type Drain struct {
	Limited bool
	After   time.Duration
}

// DrainMax is the longest time that a Service may request.
const DrainMax = 24 * time.Hour

// Or returns After if Limited is set, and otherwise the default of the mode.
func (d Drain) Or(mode time.Duration) time.Duration {
	if d.Limited {
		return d.After
	}
	return mode
}
