// SPDX-License-Identifier: Apache-2.0

package account

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
)

var (
	shopWeb = service.Key{Namespace: "shop", Name: "web"}
	webAt   = netip.MustParseAddrPort("10.96.0.10:80")
)

// newWebAccount makes an account in which shop/web has a ClusterIP and a node port.
func newWebAccount(continuous bool) *account {
	return newAccount(TrafficConfig{
		Continuous: continuous, Exists: func(service.Key) bool { return true },
		Service: func(_ service.Family, t conntrack.Tuple) (service.Key, bool) {
			return shopWeb, t.To == webAt || t.To.Port() == 30080
		},
	})
}

// webFlow is a connection to shop/web that has carried bytes in both directions.
func webFlow(number uint32, client string, bytes uint64) conntrack.Connection {
	return conntrack.Connection{
		Number: number, Protocol: unix.IPPROTO_TCP, From: netip.AddrPortFrom(netip.MustParseAddr(client), uint16(number)),
		To: webAt, Answerer: netip.MustParseAddrPort("10.0.2.2:8080"), Accounted: true,
		Carried: traffic.Counts{PacketsIn: bytes / 100, PacketsOut: 2 * bytes / 100, BytesIn: bytes, BytesOut: 2 * bytes},
	}
}

// readAll reads a table.
func (a *account) readAll(now time.Time, table ...conntrack.Connection) *traffic.Flows {
	r := a.begin(now)
	for i := range table {
		r.add(service.IPv4, &table[i])
	}
	return r.end(now)
}

// TestAccount_TotalsAreReadingDifferences: totals grow by the difference between two readings. Bytes from before the
// first reading or after the last one do not count.
func TestAccount_TotalsAreReadingDifferences(t *testing.T) {
	a, now := newWebAccount(true), time.Now()
	const c, d = "192.0.2.2", "192.0.2.3"
	byNode := webFlow(9, d, 50)
	byNode.To = netip.MustParseAddrPort("198.51.100.1:30080")
	direct := webFlow(8, d, 50)
	direct.Answerer = direct.To
	for i, step := range []struct {
		table      []conntrack.Connection
		open, sum  uint64
		clientsNow map[string]uint64 // bytes by client
	}{
		{[]conntrack.Connection{webFlow(1, c, 1000), direct}, 1, 0, nil},
		{[]conntrack.Connection{webFlow(1, c, 1200), webFlow(2, d, 100)}, 2, 300, map[string]uint64{c: 600, d: 300}},
		{[]conntrack.Connection{webFlow(2, d, 110), byNode}, 2, 300 + 60, map[string]uint64{d: 180}}, // the first one has ended
		{nil, 0, 360, nil},
		{[]conntrack.Connection{webFlow(2, c, 7)}, 1, 367, map[string]uint64{c: 21}}, // another one with the same number
	} {
		now = now.Add(15 * time.Second)
		f := a.readAll(now, step.table...)
		of := f.Services[shopWeb]
		if f.Entries != uint64(len(step.table)) || of.Open != step.open || of.BytesIn != step.sum || of.BytesOut != 2*step.sum || of.Connections != 0 {
			t.Errorf("reading %d: %+v, want %d open and %d bytes in", i, f, step.open, step.sum)
		}
		clients := map[string]uint64{}
		for _, one := range of.ByBytes {
			clients[one.Key.String()] = one.Sum
		}
		if !maps.Equal(clients, step.clientsNow) {
			t.Errorf("reading %d: clients %v, want %v", i, clients, step.clientsNow)
		}
		endpoints := traffic.Carried{}
		for _, e := range of.Endpoints {
			endpoints = endpoints.Plus(e)
		}
		if endpoints != of.Carried {
			t.Errorf("reading %d: endpoints %+v, all %+v", i, endpoints, of.Carried)
		}
		if f.Since.IsZero() || f.Previous.IsZero() != (i == 0) {
			t.Errorf("reading %d: since %v, previous %v", i, f.Since, f.Previous)
		}
	}
	if e := a.readAll(now.Add(2 * endpointKept)).Services[shopWeb]; len(e.Endpoints) != 0 || e.BytesIn != 367 {
		t.Errorf("endpoints that are gone: %+v", e)
	}
	a.Exists = func(service.Key) bool { return false }
	if f := a.readAll(now); len(f.Services) != 0 {
		t.Errorf("a Service that is gone: %+v", f)
	}
}

// TestAccount_MemoryIsBounded: an account remembers a limited number of connections. It counts the other connections as
// open, but not their bytes.
func TestAccount_MemoryIsBounded(t *testing.T) {
	a := newWebAccount(true)
	a.most = 100
	now := time.Now()
	for range 3 {
		var table []conntrack.Connection
		for i := range uint32(300) {
			table = append(table, webFlow(i+1, netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}).String(), 100*uint64(a.round+1)))
		}
		f := a.readAll(now, table...)
		if len(a.last) != 100 || f.Forgotten != 200 || f.Services[shopWeb].Open != 300 || len(f.Services[shopWeb].ByConnections) != traffic.ClientsMax {
			t.Errorf("%d remembered; %+v", len(a.last), f)
		}
	}
	if f := a.readAll(now); len(a.last) != 0 || f.Services[shopWeb].BytesIn != 2*100*100 {
		t.Errorf("%d remembered; %+v", len(a.last), f)
	}
}

// TestAccount_SingleReadingHasNoTotals: single readings return no totals, and count the clients that a list leaves out
// as others.
func TestAccount_SingleReadingHasNoTotals(t *testing.T) {
	a := newWebAccount(false)
	exact := map[netip.Addr]uint64{}
	var table []conntrack.Connection
	for i := range uint32(2000) {
		client := netip.AddrFrom4([4]byte{192, 0, 2, byte(rand.ExpFloat64() * 6)})
		exact[client]++
		table = append(table, webFlow(i+1, client.String(), 100))
	}
	for range 2 {
		f := a.readAll(time.Now(), table...)
		of, listed := f.Services[shopWeb], uint64(0)
		if len(of.ByConnections) != traffic.ClientsMax || len(of.ByBytes) != 0 || of.Counts != (traffic.Counts{}) || !f.Since.IsZero() || len(a.last) != 0 {
			t.Errorf("%+v", of)
		}
		for i, c := range of.ByConnections {
			if listed += c.Seen.Open; c.Sum < exact[c.Key] || c.Sum-c.Error > exact[c.Key] || f.Clients[i].Sum != exact[f.Clients[i].Key] {
				t.Errorf("%+v and %+v, exact %d", c, f.Clients[i], exact[c.Key])
			}
		}
		if listed+of.Others.Open != of.Open || of.Open != 2000 {
			t.Errorf("%d listed, %d others, %d open", listed, of.Others.Open, of.Open)
		}
	}
	if top := a.readAll(time.Now(), table...).Top(10, func(s *traffic.ServiceFlows) uint64 { return s.Open }); len(top) != 1 || top[0] != shopWeb {
		t.Error(top)
	}
}

// TestAccount_ClosedConnectionsNotOpen: a closed connection, which the kernel keeps for some time, does not count as
// open.
func TestAccount_ClosedConnectionsNotOpen(t *testing.T) {
	var table []conntrack.Connection
	for i, state := range []string{"", "SYN_SENT", "ESTABLISHED", "FIN_WAIT", "TIME_WAIT", "CLOSE"} {
		c := webFlow(uint32(i+1), "192.0.2.2", 0)
		c.State = state
		table = append(table, c)
	}
	of := newWebAccount(false).readAll(time.Now(), table...).Services[shopWeb]
	if of.Open != 4 || of.Closed != 2 || of.Entries() != 6 || of.Endpoints[netip.MustParseAddrPort("10.0.2.2:8080")] != of.Carried || of.ByConnections[0].Sum != 6 {
		t.Errorf("%+v, want 4 open and 2 closed", of)
	}
}
