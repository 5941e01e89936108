// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"sync/atomic"
	"time"
)

// Refusal is the reason why a client was not served.
type Refusal uint8

// The refusals.
const (
	// ClientFull, PartFull and TotalFull: the client, the listener's budget or the pool has no
	// slots left.
	ClientFull Refusal = iota
	PartFull
	TotalFull
	// Unreachable: no target accepted.
	Unreachable
	// NoTarget: the balancer has no target for this client.
	NoTarget
	// Replaced: a UDP session ended to make room for another one.
	Replaced
	// Refusals is the number of reasons.
	Refusals
)

// String returns the name of a refusal in metrics.
func (r Refusal) String() string {
	return [...]string{"client_limit", "service_limit", "process_limit", "unreachable", "no_endpoint", "replaced"}[r]
}

// Connection is an open TCP connection or UDP session.
type Connection struct {
	Place          Place
	Client, Target netip.AddrPort
	Began          time.Time
	// Bytes counts the payload that was passed on.
	Bytes
	// Also counts the same payload; the balancer may set it in Connected.
	Also *Bytes
	// Cut ends the connection, and does not block.
	Cut func()
	// stats are those of the relay.
	stats *Bytes
}

// Bytes counts the payload that was passed on. Any goroutine may use it.
type Bytes struct{ ToTargets, ToClients atomic.Uint64 }

// toTarget and toClient count the payload of one read.
func (c *Connection) toTarget(n int) {
	for _, b := range [...]*Bytes{&c.Bytes, c.Also, c.stats} {
		if b != nil {
			b.ToTargets.Add(uint64(n))
		}
	}
}

func (c *Connection) toClient(n int) {
	for _, b := range [...]*Bytes{&c.Bytes, c.Also, c.stats} {
		if b != nil {
			b.ToClients.Add(uint64(n))
		}
	}
}
