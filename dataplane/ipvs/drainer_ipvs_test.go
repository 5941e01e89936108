//go:build ipvs

package ipvs

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// An endpoint that has left is busy as long as the kernel remembers a connection to
// it, and only where it has left.
func TestKernelDrainer(t *testing.T) {
	eachKernel(t, func(t *testing.T, c *cluster) {
		d := NewDrainer(NewRenderer(c.world.family, Options{MasqueradeBit: 14}), c.Do)
		defer func() { c.must(d.Close()) }()
		d.Node(c.facts)
		p := c.openPort()
		p.Cluster = c.endpoint(2)
		c.serve(p)
		leaving := p.Cluster[0]
		p.Cluster = c.endpoint(0)
		// The client comes in by the load balancer's address, the first frontend's
		// real servers have no connection.
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if busy, err := d.Busy(ctx, c.view(p), &p, leaving); err != nil || busy {
			t.Errorf("busy before there is a connection: %t, %v", busy, err)
		}
		session, err := c.x.Connect(ctx, netip.AddrPortFrom(c.vip, 80))
		c.must(err)
		defer func() { c.must(session.Close()) }()
		if busy, err := d.Busy(ctx, c.view(p), &p, leaving); err != nil || !busy {
			t.Errorf("busy with a connection: %t, %v", busy, err)
		}
		held, err := d.Held(ctx, c.view(p), &p)
		if want := []service.Endpoint{{AddrPort: leaving.AddrPort}}; err != nil || !slices.Equal(held, want) {
			t.Errorf("held %v, %v, want %v", held, err, want)
		}
		p.Cluster = c.endpoint(2) // wanted again
		if busy, err := d.Busy(ctx, c.view(p), &p, leaving); err != nil || busy {
			t.Errorf("busy where it is wanted: %t, %v", busy, err)
		}
	})
}
