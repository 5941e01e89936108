// SPDX-License-Identifier: Apache-2.0

package health

import (
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/observe/book"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
)

// State is the state of the families and the node at one moment.
type State struct {
	At time.Time
	// Instances are the families that are served, IPv4 first.
	Instances []Instance
	// NodeEligible means that balancers may send traffic here: the Node is known and not about to be removed.
	NodeEligible bool
	// Starting means that nothing has been written yet.
	Starting bool
	// Standby means that another process serves this node, and this one waits until it exits.
	Standby bool
	// Hangs means that the proxy was told to stop and has not, for longer than a change may
	// wait. Nothing processes changes meanwhile.
	Hangs bool
}

// Instance is one family.
type Instance struct {
	Family service.Family
	// Updated is when the kernel was last known to match what is wanted, or the start.
	Updated time.Time
	// Pending is when the oldest change that is not in the kernel began to wait; zero if there is none. Changes that
	// are held back for the sake of others do not count.
	Pending time.Time
	// Bare means that the kernel is known to have no rules of this family that serve.
	Bare bool
	// Healthy means that nothing is pending, or not for long, and that the family has rules.
	Healthy bool
	// Live means that no change waits for too long, apart from the time that the write in flight excuses. Bare does not
	// count.
	Live bool
}

// Health is the state of a node in one word. All that show it use these words.
type Health string

// The words. A degraded node has findings, and does its work.
const (
	Starting  Health = "starting"
	Healthy   Health = "healthy"
	Degraded  Health = "degraded"
	Unhealthy Health = "unhealthy"
)

// Health returns the word for a node with so many findings. Eligible is also true if the answer does not depend on the
// Node.
func (s *State) Health(eligible bool, findings int) Health {
	switch {
	case s.Starting && s.Healthy():
		return Starting
	case !s.Healthy() || s.Standby || !eligible:
		return Unhealthy
	case findings > 0:
		return Degraded
	default:
		return Healthy
	}
}

// Live reports whether every family is live, and the proxy does not hang while it stops.
func (s *State) Live() bool {
	return !s.Hangs && !slices.ContainsFunc(s.Instances, func(i Instance) bool { return !i.Live })
}

// Bare lists the families that are known to have no rules that serve.
func (s *State) Bare() (all []service.Family) {
	for _, i := range s.Instances {
		if i.Bare {
			all = append(all, i.Family)
		}
	}
	return all
}

// Healthy reports whether every family is healthy, and the proxy does not hang while it stops.
func (s *State) Healthy() bool {
	return !s.Hangs && !slices.ContainsFunc(s.Instances, func(i Instance) bool { return !i.Healthy })
}

// Updated returns the latest success of any family, zero without one.
func (s *State) Updated() time.Time {
	var latest time.Time
	for i := range s.Instances {
		latest = later(latest, s.Instances[i].Updated)
	}
	return latest
}

// Report is a State and everything that is wrong.
type Report struct {
	State
	// Findings are sorted, the gravest kinds first. There are a few per domain and per API
	// resource, regardless of the number of Services.
	Findings []Finding
}

// DomainStatus is the newest snapshot of one domain, with what the snapshot does not say.
type DomainStatus struct {
	Status aggregator.Status
	Family service.Family
	// Auxiliary domains hold something besides the kernel's rules. Their problems are reported and
	// make no node unhealthy.
	Auxiliary bool
}

// Right reports whether the kernel has what is wanted at a time, as far as the proxy knows: nothing waits for long, and
// the rules of the node itself are not rejected. Quarantined Services do not count.
func (d *DomainStatus) Right(now time.Time) bool {
	s := &d.Status
	node := func(q aggregator.QuarantinedKey) bool { return q.Key == service.Node }
	return s.Open && s.Bare.IsZero() && !s.Failing() && !slices.ContainsFunc(s.Quarantined, node) &&
		(s.OldestPending.IsZero() || now.Sub(s.OldestPending) < lateAfter)
}

// Standby describes a process that waits until another one, which serves the node, exits. It owes
// nothing to the kernel meanwhile. A restart would not help, so /livez answers 200; balancers have
// no reason to send traffic here, so /healthz answers 503.
type Standby struct {
	// For describes the other process; it is empty when this one does not wait.
	For string
	// Since is when the wait began, or, afterwards, when it ended. It is zero if there was none.
	Since time.Time
}

// inputs are everything that the health state depends on, at one moment. The judgement is
// pure.
type inputs struct {
	now, started time.Time
	// bound is the age at which a pending change makes its family unhealthy.
	bound     time.Duration
	domains   []DomainStatus
	node      *service.NodeObject
	resources []state.Resource
	standby   Standby
	others    []Finding
	// stopping is when the proxy was told to stop; zero if it was not.
	stopping time.Time
	// history has that of each domain, and affected the Services of each of the kinds in ofServices.
	history  map[string]book.History
	affected map[Kind][]Affected
}

func (in *inputs) state() State {
	s := State{At: in.now, NodeEligible: ineligible(in.node) == "", Standby: in.standby.For != "",
		Hangs: in.tooOld(in.stopping), Starting: len(in.domains) == 0}
	for i := range in.domains {
		s.Starting = s.Starting || !in.domains[i].Auxiliary && !in.domains[i].Status.Open
	}
	for _, family := range service.Families {
		if i, served := in.instance(family); served {
			s.Instances = append(s.Instances, i)
		}
	}
	return s
}

// instance judges a family by its domains. It reports false if there are none.
func (in *inputs) instance(family service.Family) (i Instance, served bool) {
	i = Instance{Family: family, Updated: in.started}
	var late time.Time // since when a change is pending, without what is excused
	for n := range in.domains {
		d := &in.domains[n]
		if d.Auxiliary || d.Family != family {
			continue
		}
		served = true
		i.Updated = later(later(i.Updated, d.Status.LastWrite), in.history[d.Status.Domain].Right)
		i.Bare = i.Bare || in.standby.For == "" && !d.Status.Bare.IsZero()
		since := in.pending(d)
		i.Pending = dataplane.Earliest(i.Pending, since)
		if excused := d.Status.Excused; !since.IsZero() && !excused.IsZero() {
			since = later(since, dataplane.Earliest(in.now, excused))
		}
		late = dataplane.Earliest(late, since)
	}
	i.Healthy = !i.Bare && !in.tooOld(i.Pending)
	// However short the sync period is, the search for a Service that hangs ends before a restart.
	i.Live = late.IsZero() || in.now.Sub(late) < max(in.bound, aggregator.Liveness)
	return i, served
}

// pending returns the time since which changes of a domain wait. A failed write counts even if no Service waits for it:
// it may have been a repair. So does the first write, which kube-proxy v1.37 counts from its first topology update on.
// What was pending during a standby counts from the end of the standby on.
func (in *inputs) pending(d *DomainStatus) time.Time {
	if in.standby.For != "" {
		return time.Time{}
	}
	since := d.Status.OldestPending
	if !d.Status.Open {
		since = dataplane.Earliest(since, in.started)
	}
	if d.Status.Failing() {
		since = dataplane.Earliest(since, in.history[d.Status.Domain].Failing)
	}
	if since.IsZero() {
		return since
	}
	return later(since, in.standby.Since)
}

func (in *inputs) tooOld(since time.Time) bool {
	return !since.IsZero() && in.now.Sub(since) >= in.bound
}

// ineligible says why balancers must not send traffic to a node; it returns "" if they may.
func ineligible(node *service.NodeObject) string {
	switch {
	case node == nil:
		return "the Node object is unknown"
	case node.Deleted:
		return "the Node object was deleted"
	case node.Deleting:
		return "the Node is being deleted"
	case node.AutoscalerTaint:
		return "the Node is tainted with ToBeDeletedByClusterAutoscaler"
	default:
		return ""
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
