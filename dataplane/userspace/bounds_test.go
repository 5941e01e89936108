// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"math"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/service"
)

// TestBounds_FileDescriptors: the default limits follow the file-descriptor limit.
func TestBounds_FileDescriptors(t *testing.T) {
	for descriptors, want := range map[uint64][3]int{
		16: {4, 4, 12}, 1024: {64, 128, 768}, 1 << 19: {32768, 65536, 393216}, math.MaxUint64: {65536, 65536, 805306368},
	} {
		if got := boundsFor(descriptors, nil); [3]int{got.Connections, got.Sessions, got.Listeners} != want {
			t.Errorf("%d descriptors: %+v, want %v", descriptors, got, want)
		}
	}
}

// TestBounds_DefaultPerClient: the default limit per client is a fraction of the connection limit.
func TestBounds_DefaultPerClient(t *testing.T) {
	for _, c := range []struct{ connections, configured, want int }{
		{1 << 16, 0, 1024}, {32768, 0, 512}, {1024, 0, 256}, {64, 0, 16}, {64, 50, 50}, {1, 0, 1},
	} {
		if got := newTotal(Bounds{Connections: c.connections, ConnectionsPerClient: c.configured}).ConnectionsPerClient(); got != c.want {
			t.Errorf("%+v: got %d", c, got)
		}
	}
}

// TestBounds_ReportedOncePerMinute: a reached limit is reported at most once a minute, and the limit of the process
// once for all Services.
func TestBounds_ReportedOncePerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := netip.MustParseAddr("192.0.2.1")
		var said []Full
		r := NewRegistry(Bounds{Connections: 1, Full: func(f Full) { said = append(said, f) }})
		web, db := r.hold(PortID{Service: service.Key{Namespace: "ns1", Name: "web"}}), r.hold(PortID{Service: service.Key{Namespace: "ns1", Name: "db"}})
		meet := func(p *port, times int) {
			for range times {
				r.atBound(p, service.TCP, client)
			}
		}
		meet(web, 3)
		if len(said) != 1 || said[0] != (Full{Port: web.id, Client: client, Why: relay.TotalFull, Most: 1}) {
			t.Errorf("said %+v", said)
		}
		meet(db, 3)
		time.Sleep(sayPause)
		meet(db, 3)
		if len(said) != 2 || said[1].Port != db.id {
			t.Errorf("said %+v", said)
		}
	})
}
