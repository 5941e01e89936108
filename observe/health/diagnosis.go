// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/plural"
	"github.com/sluice-proxy/sluice/observe/state"
)

const (
	// lateAfter is how long something may wait before it is reported.
	lateAfter = 10 * time.Second
	// silentAfter is how long the API server may be silent about a resource: a quiet watch hears
	// from it about once a minute.
	silentAfter = 5 * time.Minute
	// driftShown is how long drift is reported after its repair.
	driftShown = 15 * time.Minute
)

// late reports whether something has lasted long enough to be reported.
func (in *inputs) late(since time.Time) bool {
	return !since.IsZero() && in.now.Sub(since) >= lateAfter
}

// ofServices are the findings about Services in all domains.
var ofServices = []struct {
	kind    Kind
	problem string
}{
	{Parked, "actors that keep failing: %d"},
	{Stuck, "actors that hung and did not return: %d"},
	{TooLarge, "Services that need too many objects: %d"},
	{Shadowed, "Services that request addresses and ports owned by other Services: %d"},
}

// findings lists everything that is wrong.
func (in *inputs) findings() []Finding {
	var all []Finding
	if why := ineligible(in.node); why != "" {
		all = append(all, Finding{Kind: NodeNotEligible, Unhealthy: true, Problem: why})
	}
	if s := &in.standby; s.For != "" {
		all = append(all, Finding{Kind: Waiting, Since: s.Since, Unhealthy: true,
			Problem: "another proxy serves this node; this one is ready and waits until it exits: " + state.OneLine(s.For)})
	}
	if in.tooOld(in.stopping) {
		all = append(all, Finding{Kind: StopHangs, Since: in.stopping, Unhealthy: true,
			Problem: "this proxy was told to stop, because the process ends or the configuration changed, but it has not stopped"})
	}
	all = append(all, in.others...)
	for i := range in.domains {
		all = append(all, in.domainFindings(&in.domains[i])...)
	}
	all = append(all, in.apiFindings()...)
	for _, of := range ofServices {
		all = append(all, serviceFindings(of.kind, of.problem, in.affected[of.kind])...)
	}
	slices.SortStableFunc(all, func(a, b Finding) int { return rank(a.Kind) - rank(b.Kind) })
	for i := range all {
		all[i].Meaning, all[i].Advice = Meaning(all[i].Kind), Advice(all[i].Kind)
	}
	return all
}

// domainFindings lists what is wrong with a domain.
func (in *inputs) domainFindings(d *DomainStatus) []Finding {
	var all []Finding
	s, h := &d.Status, in.history[d.Status.Domain]
	if !s.Bare.IsZero() && !d.Auxiliary && in.standby.For == "" {
		f := Finding{Kind: RulesMissing, About: s.Domain, Since: s.Bare, Unhealthy: true, Problem: "all rules are missing"}
		if s.LastError != "" {
			f.Problem += "; the last error: " + state.OneLine(s.LastError)
		}
		all = append(all, f)
	}
	if f, found := in.pendingFinding(d); found {
		all = append(all, f)
	}
	if !h.Unread.IsZero() {
		all = append(all, Finding{Kind: AuditFailing, About: s.Domain, Since: h.Unread,
			Problem: "cannot read back the kernel's rules: " + h.ReadErr})
	}
	if !h.DriftAt.IsZero() && in.now.Sub(h.DriftAt) < driftShown {
		repaired := "being restored"
		if s.LastWrite.After(h.DriftAt) {
			repaired = "restored since"
		}
		all = append(all, Finding{Kind: Drift, About: s.Domain, Since: h.DriftAt,
			Problem: fmt.Sprintf("an audit found %s missing, %d different and %d unwanted, %s; audits that found drift since the start: %d",
				plural.Of(h.Drift.Missing, "object"), h.Drift.Different, h.Drift.Unwanted, repaired, h.Drifts)})
	}
	held := make([]Affected, 0, len(s.Quarantined))
	for _, q := range s.Quarantined {
		held = append(held, Affected{Service: q.Key.String(), Since: q.Since, Reason: state.OneLine(q.Reason)})
	}
	for _, f := range serviceFindings(Quarantined, "Services with rules that are rejected or cannot be written: %d", held) {
		f.About = s.Domain
		all = append(all, f)
	}
	return all
}

// pendingFinding explains why changes of a domain are not in the kernel. Besides missing rules, only that makes its
// family unhealthy, once it lasts too long.
func (in *inputs) pendingFinding(d *DomainStatus) (f Finding, found bool) {
	s := &d.Status
	since := in.pending(d)
	f = Finding{About: s.Domain, Since: since, Unhealthy: !d.Auxiliary && in.tooOld(since)}
	switch {
	case !s.Open && s.Missing == 0:
		f.Kind, found = FirstWriteHeld, in.late(since)
		f.Problem = "no rules written since startup: waiting for the initial list of Services, EndpointSlices and the Node"
	case !s.Open:
		f.Kind, found = FirstWriteHeld, in.late(since)
		f.Problem = fmt.Sprintf("no rules written since startup: Services not rendered yet: %d", s.Missing)
	case s.NodeAtFault:
		f.Kind, found = NodeAtFault, true
		f.Problem = "the kernel rejects rules that belong to no Service: " + state.OneLine(s.LastError)
	case s.Failures > 0:
		f.Kind, found = WriteFailing, true
		f.Problem = fmt.Sprintf("failed writes in a row: %d; the last error: %s", s.Failures, state.OneLine(s.LastError))
	case in.now.Before(s.RepairAt):
		f.Kind, found = BatchStuck, in.late(since)
		f.Problem = "a repair waits on purpose, because another process undid the last ones; it begins at the latest in " + age(s.RepairAt, in.now)
	default:
		f.Kind, found = BatchStuck, in.late(since)
		f.Problem = "a change waits for the kernel, and no write failed"
	}
	// The bound may be shorter than lateAfter: every unhealthy state is explained.
	return f, found || f.Unhealthy
}

// apiFindings returns one finding about all resources that cannot be read from the API, or none. An
// outage of the API server affects all of them, usually for one reason.
func (in *inputs) apiFindings() []Finding {
	var stale []string
	var problems []string
	about := map[string][]string{} // by problem
	f := Finding{Kind: APIStale}
	for i := range in.resources {
		r := &in.resources[i]
		since, problem := in.staleness(r)
		if problem == "" {
			continue
		}
		f.Since = dataplane.Earliest(f.Since, since)
		stale = append(stale, r.Name)
		if about[problem] == nil {
			problems = append(problems, problem)
		}
		about[problem] = append(about[problem], r.Name)
	}
	if len(stale) == 0 {
		return nil
	}
	if len(problems) > 1 {
		for i, problem := range problems {
			problems[i] = strings.Join(about[problem], ", ") + ": " + problem
		}
	}
	f.About, f.Resources = strings.Join(stale, ", "), len(stale)
	f.Problem = strings.Join(problems, "; ")
	return []Finding{f}
}

// staleness says since when and why one resource is not known to be up to date; the problem is empty
// if it is.
func (in *inputs) staleness(r *state.Resource) (since time.Time, problem string) {
	switch {
	case r.Absent:
		return since, "" // optional, and logged
	case !r.FailingSince.IsZero() && r.Error != "":
		return r.FailingSince, "cannot read from the API server: " + state.OneLine(r.Error)
	case !r.FailingSince.IsZero():
		return r.FailingSince, "cannot read from the API server"
	case r.Heard.IsZero() && in.late(in.started):
		return in.started, "no response from the API server yet"
	case !r.Heard.IsZero() && in.now.Sub(r.Heard) >= silentAfter:
		return r.Heard, "the API server is silent"
	default:
		return since, ""
	}
}
