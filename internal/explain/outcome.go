// SPDX-License-Identifier: Apache-2.0

//go:build linux

package explain

import (
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// answer assembles the Answer.
func (e *explanation) answer(ways []way) *Answer {
	a := &Answer{
		From: e.From.Addr().String(), Interface: e.Interface, To: e.To.String(), Protocol: e.Protocol.String(),
		Node: e.Facts.Name, Mode: e.Mode, Origin: e.origin, Assumed: e.assumed,
	}
	if e.From.Port() != 0 {
		a.From = e.From.String()
	}
	for i := range e.frontends {
		f := &e.frontends[i]
		policy := "Cluster"
		if f.Local {
			policy = "Local"
		}
		a.Frontends = append(a.Frontends, Frontend{f.view.Key.String(), f.port.Name, f.Kind.String(), policy})
	}
	for i := range ways {
		a.Outcomes = append(a.Outcomes, e.outcome(&ways[i]))
		if ways[i].How != "" {
			a.Scheduler, a.Outcomes[i].Probability = ways[i].Scheduler, 0
		}
	}
	if len(ways) > 0 {
		a.Verdict = ways[0].Verdict
		a.Source = e.source(ways)
	}
	a.Reasons = e.reasons(ways)
	return a
}

func (e *explanation) outcome(w *way) Outcome {
	o := Outcome{
		Verdict: w.Verdict, To: w.To.String(), Probability: w.Probability, Masqueraded: w.Masqueraded, Steps: w.Steps,
	}
	if len(e.frontends) == 0 || w.Verdict != Delivered {
		return o
	}
	if p, ok := e.endpoint(w.To); ok {
		o.Node, o.Ready, o.Terminating = p.Where().NodeName, p.Ready, p.Terminating
	}
	return o
}

// endpoint returns the EndpointSlice entry of an endpoint of the Service that owns the destination. Of several entries
// it prefers a ready one.
func (e *explanation) endpoint(at netip.AddrPort) (best service.SliceEndpoint, found bool) {
	for _, s := range e.frontends[0].snapshot.Slices {
		if !slices.ContainsFunc(s.Ports, func(p service.SlicePort) bool { return p.Port == at.Port() }) {
			continue
		}
		for _, p := range s.Endpoints {
			if p.Addr == at.Addr() && (!found || p.Ready && !best.Ready) {
				best, found = p, true
			}
		}
	}
	return best, found
}

// source returns whose address receivers see.
func (e *explanation) source(ways []way) Source {
	seen := map[bool]bool{}
	for i := range ways {
		if v := ways[i].Verdict; v == Delivered || v == Untouched {
			seen[ways[i].Masqueraded || e.origin == FromNode] = true
		}
	}
	switch {
	case seen[true] && seen[false]:
		return AsEither
	case seen[true]:
		return AsNode
	case seen[false]:
		return AsClient
	default:
		return ""
	}
}
