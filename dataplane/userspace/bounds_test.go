package userspace

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

func TestBoundsFollowTheDescriptors(t *testing.T) {
	for descriptors, want := range map[uint64][2]int{16: {4, 4}, 1024: {64, 128}, 1 << 19: {32768, 65536}, 1 << 30: {65536, 65536}} {
		if got := boundsFor(descriptors, nil); got.Connections != want[0] || got.Sessions != want[1] {
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
