// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"container/list"
	"net/netip"
	"time"
)

// clientsMax limits the clients that a Service port remembers for affinity.
const clientsMax = 1 << 16

// affinity remembers the endpoints of clients. At clientsMax it forgets the client whose last connection is
// the oldest. The zero value is ready; its owner guards it.
type affinity struct {
	byClient map[netip.Addr]*list.Element
	// recent has a *sticky for each client, the most recent first.
	recent list.List
}

// sticky is the endpoint of a client, and until when it keeps it.
type sticky struct {
	client netip.Addr
	to     netip.AddrPort
	until  time.Time
}

// of returns the last endpoint of a client, and whether the client still keeps it.
func (a *affinity) of(client netip.Addr, now time.Time) (netip.AddrPort, bool) {
	known := a.byClient[client]
	if known == nil {
		return netip.AddrPort{}, false
	}
	s := known.Value.(*sticky)
	return s.to, now.Before(s.until)
}

// remember notes a client's endpoint.
func (a *affinity) remember(client netip.Addr, to netip.AddrPort, until time.Time) {
	if a.byClient == nil {
		a.byClient = make(map[netip.Addr]*list.Element)
	}
	known := a.byClient[client]
	if known == nil && len(a.byClient) >= clientsMax {
		known = a.recent.Back()
		delete(a.byClient, known.Value.(*sticky).client)
	}
	if known == nil {
		a.byClient[client] = a.recent.PushFront(&sticky{client, to, until})
		return
	}
	*known.Value.(*sticky) = sticky{client, to, until}
	a.byClient[client] = known
	a.recent.MoveToFront(known)
}

// clear forgets all.
func (a *affinity) clear() {
	clear(a.byClient)
	a.recent.Init()
}
