// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// Carried is the traffic of some connections.
type Carried struct {
	// Open is the number of open connections. Closed ones have an entry in the kernel's connection table for
	// some time as well.
	Open, Closed uint64
	// Counts.Connections is 0: a reading of the table misses connections that ended before it.
	Counts
}

// Plus returns the sum.
func (c Carried) Plus(other Carried) Carried {
	return Carried{Open: c.Open + other.Open, Closed: c.Closed + other.Closed, Counts: c.Counts.Plus(other.Counts)}
}

// Entries is the number of entries in the kernel's connection table.
func (c Carried) Entries() uint64 { return c.Open + c.Closed }

// Bytes returns the bytes in both directions.
func (c Counts) Bytes() uint64 { return c.BytesIn + c.BytesOut }

// ClientsMax is the number of clients that a list has at most.
const ClientsMax = 10

// Flows is one reading of the kernel's connection table. It never changes, and may be shared.
//
// Packets and bytes include the headers of IP and above. They are taken from the readings: what a connection carries
// after its last reading is not counted, and a connection that begins and ends between two readings is not seen at all.
type Flows struct {
	// Began and Ended are the times of the reading.
	Began, Ended time.Time
	// Since is the time from which the totals of Services and endpoints count packets and bytes. It and these totals
	// are zero if readings are not continuous (traffic.accounting).
	Since time.Time
	// Previous is the end of the previous reading, from which on the traffic of clients counts. Both are zero if there
	// was no previous reading.
	Previous time.Time
	// Entries is the number of connections, to Services or not. Forgotten is how many of them were
	// beyond the limit of connections whose counters are remembered, and so are missing in all counts.
	Entries, Forgotten uint64
	// Services are those with connections, and those with totals until they are deleted.
	Services map[service.Key]ServiceFlows
	// Clients are the addresses that began most connections, to Services or not, by that number.
	Clients []Ranked[netip.Addr]
}

// ServiceFlows is the traffic of one Service.
type ServiceFlows struct {
	// Carried is the sum over all connections. Its counts only grow.
	Carried
	// Endpoints only grow too, until an endpoint had no connection for an hour.
	Endpoints map[netip.AddrPort]Carried
	// ByConnections are the clients with most open connections, and ByBytes those that carried most since the
	// previous reading. Others is the sum over the clients that ByConnections does not list.
	ByConnections, ByBytes []Ranked[netip.Addr]
	Others                 Carried
}

// Top returns the keys of the Services that rank highest by a number, the highest first, but no more than most keys.
// Services with 0 are left out.
func (f *Flows) Top(most int, number func(*ServiceFlows) uint64) []service.Key {
	sums := make(map[service.Key]uint64, len(f.Services))
	var keys []service.Key
	for key, of := range f.Services {
		if n := number(&of); n > 0 {
			sums[key] = n
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b service.Key) int {
		return cmp.Or(cmp.Compare(sums[b], sums[a]), cmp.Compare(a.String(), b.String()))
	})
	return keys[:min(most, len(keys))]
}
