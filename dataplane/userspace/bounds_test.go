package userspace

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

func TestBoundsFollowTheDescriptors(t *testing.T) {
	for descriptors, want := range map[uint64][3]int{
		16: {4, 4, 12}, 1024: {64, 128, 768}, 1 << 19: {32768, 65536, 393216}, math.MaxUint64: {65536, 65536, 805306368},
	} {
		if got := boundsFor(descriptors, nil); [3]int{got.Connections, got.Sessions, got.Listeners} != want {
			t.Errorf("%d descriptors: %+v, want %v", descriptors, got, want)
		}
	}
}

// TestBoundsAreSaidOnceAMinute for each Service, and once for the process.
func TestBoundsAreSaidOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []Full
		r := NewRegistry(Bounds{Connections: 1, Full: func(f Full) { said = append(said, f) }}, nil)
		web, db := r.hold(PortID{Service: service.Key{Namespace: "ns1", Name: "web"}}), r.hold(PortID{Service: service.Key{Namespace: "ns1", Name: "db"}})
		meet := func(p *port, times int) {
			for range times {
				r.atBound(p, service.TCP)
			}
		}
		meet(web, 3)
		if len(said) != 1 || said[0] != (Full{Port: web.id, Total: true, Most: 1}) {
			t.Errorf("said %+v", said)
		}
		meet(db, 3)
		time.Sleep(fullPause)
		meet(db, 3)
		if len(said) != 2 || said[1].Port != db.id {
			t.Errorf("said %+v", said)
		}
	})
}
