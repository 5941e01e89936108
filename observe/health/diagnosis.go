package health

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	// lateAfter is how long something may wait without a word about it.
	lateAfter = 10 * time.Second
	// silentAfter is how long the API server may be silent about a resource: a
	// quiet watch is heard of about once a minute.
	silentAfter = 5 * time.Minute
	// driftShown is how long drift is told after it was repaired.
	driftShown = 15 * time.Minute
)

// late reports whether something lasts long enough to be mentioned.
func (p *picture) late(since time.Time) bool {
	return !since.IsZero() && p.now.Sub(since) >= lateAfter
}

// findings lists everything that is not as it should be.
func (p *picture) findings() []Finding {
	var all []Finding
	if why := ineligible(p.node); why != "" {
		all = append(all, Finding{Kind: NodeNotEligible, Unhealthy: true, Problem: why})
	}
	all = append(all, p.standby.findings()...)
	all = append(all, p.others...)
	for i := range p.domains {
		all = append(all, p.domainFindings(&p.domains[i])...)
	}
	for i := range p.resources {
		if f, found := p.resourceFinding(&p.resources[i]); found {
			all = append(all, f)
		}
	}
	b := &p.board
	all = append(all, serviceFindings(Parked, "actors that keep failing: %d", maps.Values(b.parked))...)
	all = append(all, serviceFindings(Stuck, "actors that hung and have not returned: %d", maps.Values(b.stuck))...)
	all = append(all, serviceFindings(Refused, "Services that there was no room for: %d", maps.Values(b.refused))...)
	rank := map[Kind]int{}
	for i := range guide {
		rank[guide[i].kind] = i
	}
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(rank[a.Kind], rank[b.Kind]) })
	return all
}

// domainFindings says what is wrong with a domain.
func (p *picture) domainFindings(d *Domain) []Finding {
	var all []Finding
	s, r := &d.Status, p.board.domains[d.Status.Domain]
	if f, found := p.pendingFinding(d); found {
		all = append(all, f)
	}
	if !r.unread.IsZero() {
		all = append(all, Finding{Kind: AuditFailing, About: s.Domain, Since: r.unread,
			Problem: "the kernel's rules cannot be read back: " + r.readErr})
	}
	if !r.driftAt.IsZero() && p.now.Sub(r.driftAt) < driftShown {
		repaired := "being written again"
		if s.LastWrite.After(r.driftAt) {
			repaired = "written again"
		}
		all = append(all, Finding{Kind: Drift, About: s.Domain, Since: r.driftAt,
			Problem: fmt.Sprintf("an audit found %d objects missing, %d different and %d unwanted, %s; audits that found something since the start: %d",
				r.drift.Missing, r.drift.Different, r.drift.Unwanted, repaired, r.drifts)})
	}
	held := make([]Affected, 0, len(s.Quarantined))
	for _, q := range s.Quarantined {
		held = append(held, Affected{Service: q.Key.String(), Since: q.Since, Reason: oneLine(q.Reason)})
	}
	for _, f := range serviceFindings(Quarantined, "Services of which something is refused: %d", slices.Values(held)) {
		f.About = s.Domain
		all = append(all, f)
	}
	return all
}

// pendingFinding says why a domain owes something to the kernel: the one thing
// that makes its family unhealthy once it lasts too long.
func (p *picture) pendingFinding(d *Domain) (f Finding, found bool) {
	s := &d.Status
	since := p.pending(d)
	f = Finding{About: s.Domain, Since: since, Unhealthy: !d.Auxiliary && p.tooOld(since)}
	switch {
	case !s.Open && s.Missing == 0:
		f.Kind, found = FirstWriteHeld, p.late(since)
		f.Problem = "nothing has been written since the start: the first full picture of Services, EndpointSlices and the Node is not in"
	case !s.Open:
		f.Kind, found = FirstWriteHeld, p.late(since)
		f.Problem = fmt.Sprintf("nothing has been written since the start: Services that are not rendered yet: %d", s.Missing)
	case s.NodeAtFault:
		f.Kind, found = NodeAtFault, true
		f.Problem = "the kernel refuses rules that belong to no Service: " + oneLine(s.LastError)
	case s.Failures > 0:
		f.Kind, found = WriteFailing, true
		f.Problem = fmt.Sprintf("failed tries in a row: %d; the last error: %s", s.Failures, oneLine(s.LastError))
	default:
		f.Kind, found = BatchStuck, p.late(since)
		f.Problem = "a change waits for the kernel, and no write has failed"
	}
	// With a bound below lateAfter, what is unhealthy is still explained.
	return f, found || f.Unhealthy
}

// resourceFinding says what is wrong with what is read from the API.
func (p *picture) resourceFinding(r *Resource) (f Finding, found bool) {
	f = Finding{Kind: APIStale, About: r.Resource}
	switch {
	case r.Absent:
		return f, false // optional, and the log has said so
	case !r.FailingSince.IsZero():
		f.Since = r.FailingSince
		f.Problem = "the API server cannot be read"
		if r.Err != nil {
			f.Problem += ": " + oneLine(r.Err.Error())
		}
	case r.Heard.IsZero() && p.late(p.started):
		f.Since, f.Problem = p.started, "the API server has not answered yet"
	case !r.Heard.IsZero() && p.now.Sub(r.Heard) >= silentAfter:
		f.Since, f.Problem = r.Heard, "the API server is silent"
	default:
		return f, false
	}
	return f, true
}
