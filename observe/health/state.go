package health

import (
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// State is how the families and the node are doing at one moment.
type State struct {
	At time.Time
	// Instances are the families that are served, IPv4 first.
	Instances []Instance
	// NodeEligible tells that balancers may send traffic here: the Node is
	// known and not about to go.
	NodeEligible bool
	// Standby: another process serves this node, and this one waits for its end.
	Standby bool
}

// Instance is one family.
type Instance struct {
	Family service.Family
	// Updated is when the kernel was last known to be as wanted, or the start.
	Updated time.Time
	// Pending is since when the oldest change waits that is not in the kernel;
	// zero when there is none. What is held back for the sake of others does not
	// count.
	Pending time.Time
	// Healthy: nothing is pending, or not for long.
	Healthy bool
}

// Healthy reports whether every family is healthy.
func (s *State) Healthy() bool {
	for i := range s.Instances {
		if !s.Instances[i].Healthy {
			return false
		}
	}
	return true
}

// Updated is the latest success of any family, zero without one.
func (s *State) Updated() time.Time {
	var latest time.Time
	for i := range s.Instances {
		latest = later(latest, s.Instances[i].Updated)
	}
	return latest
}

// Report is a State with everything that is not as it should be.
type Report struct {
	State
	// Findings are sorted, the gravest kinds first. There are a few per domain
	// and per API resource, whatever the number of Services.
	Findings []Finding
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
