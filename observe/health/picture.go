package health

import (
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// picture is everything that is judged, at one moment. Judging it is pure.
type picture struct {
	now, started time.Time
	// bound is the age from which on a pending change makes its family
	// unhealthy.
	bound     time.Duration
	domains   []Domain
	node      *service.NodeObject
	resources []Resource
	standby   Standby
	others    []Finding
	board     board
}

func (p *picture) state() State {
	s := State{At: p.now, NodeEligible: ineligible(p.node) == "", Standby: p.standby.For != ""}
	for _, family := range service.Families {
		if i, served := p.instance(family); served {
			s.Instances = append(s.Instances, i)
		}
	}
	return s
}

// instance judges a family by its domains; false when it has none.
func (p *picture) instance(family service.Family) (i Instance, served bool) {
	i = Instance{Family: family, Updated: p.started}
	for n := range p.domains {
		d := &p.domains[n]
		if d.Auxiliary || d.Family != family {
			continue
		}
		served = true
		i.Updated = later(later(i.Updated, d.Status.LastWrite), p.board.domains[d.Status.Domain].right)
		i.Pending = dataplane.Earliest(i.Pending, p.pending(d))
	}
	i.Healthy = !p.tooOld(i.Pending)
	return i, served
}

// pending is since when a domain owes something to the kernel. A failed write
// counts even if no Service waits for it: it may have been a repair. So does the
// first write, which kube-proxy v1.36 owes from its first topology update on.
func (p *picture) pending(d *Domain) time.Time {
	since := d.Status.OldestPending
	if !d.Status.Open {
		since = dataplane.Earliest(since, p.started)
	}
	if failing(&d.Status) {
		since = dataplane.Earliest(since, p.board.domains[d.Status.Domain].failing)
	}
	return p.standby.owed(since)
}

func (p *picture) tooOld(since time.Time) bool {
	return !since.IsZero() && p.now.Sub(since) >= p.bound
}

// ineligible says why balancers must not send traffic to a node; empty when they
// may.
func ineligible(node *service.NodeObject) string {
	switch {
	case node == nil:
		return "the Node object has not been seen"
	case node.Deleting:
		return "the Node is being deleted"
	case node.AutoscalerTaint:
		return "the Node has the taint ToBeDeletedByClusterAutoscaler"
	default:
		return ""
	}
}
