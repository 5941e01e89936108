package metrics

import (
	"sync/atomic"

	"github.com/sluice-proxy/sluice/service"
)

// unserved counts the ports of one Service and family whose traffic policy is Local
// and finds no endpoint on this node, although there is one elsewhere.
type unserved struct {
	internal, external uint16
}

// note counts a port. A port without any usable endpoint is not counted: no policy is
// to blame for that.
func (u *unserved) note(p *service.PortView) {
	if !p.HasAny || len(p.Local) > 0 {
		return
	}
	if p.InternalLocal {
		u.internal++
	}
	if p.ExternalLocal {
		u.external++
	}
}

// unservedCounts are the sums over all Services.
type unservedCounts struct {
	internal, external atomic.Int64
}

// replace exchanges one Service's share.
func (c *unservedCounts) replace(before, after unserved) {
	c.internal.Add(int64(after.internal) - int64(before.internal))
	c.external.Add(int64(after.external) - int64(before.external))
}
