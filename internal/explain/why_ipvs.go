// SPDX-License-Identifier: Apache-2.0

//go:build linux

package explain

import (
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// sourceAt returns the source of the first packet. A process of the node that binds to no address gets the destination
// as its source, if that is an address of the node, such as a Service's address on the IPVS device.
func (e *explanation) sourceAt(rules ruleset) netip.Addr {
	from, to := e.From.Addr(), e.To.Addr()
	if r, ok := rules.(*ipvsRules); !ok || e.origin != FromNode || !r.local(to) {
		return from
	}
	e.unbound = true
	if from == to {
		return from
	}
	e.assume("the process does not bind to %s, so its source is %s, an address of the node in IPVS mode "+
		"(name a port in --from for one that does)", from, to)
	return to
}

// balancing explains which real servers can be chosen, and how.
func (w *why) balancing(f *frontend, ways []way) {
	p := f.port
	switch {
	case !p.HasAny:
		w.say("%s has no usable endpoint: %s", f.view.Key.PortString(p.Name), w.census(f))
		return
	case !f.Local:
		w.topology(f)
	case f.Kind == service.ClusterIP && !f.served():
		w.say("internalTrafficPolicy is Local, and no usable endpoint runs on this node (%s)", w.census(f))
		return
	case f.Kind == service.ClusterIP:
		w.say("internalTrafficPolicy is Local: only endpoints on this node are used")
	case f.served():
		w.say("externalTrafficPolicy is Local: only endpoints on this node are used, also for local pods and the node itself, " +
			"because a virtual server does not distinguish its clients")
	default:
		w.say("externalTrafficPolicy is Local, and no usable endpoint runs on this node (%s)", w.census(f))
		switch {
		case len(ways) == 0 || ways[0].Verdict != Delivered:
		case w.origin == FromNode || w.detected():
			w.say("but clients on this node and local pods may use all endpoints")
		default:
			w.say("but it gets endpoints elsewhere: it cannot be distinguished from local pods, which may use all " +
				"(see --detect-local-mode and --cluster-cidr)")
		}
	}
	w.scheduler(ways)
}

// scheduler explains how the virtual server chooses, if the probabilities are unknown.
func (w *why) scheduler(ways []way) {
	if at := slices.IndexFunc(ways, func(one way) bool { return one.How != "" }); at >= 0 {
		w.say("there are no probabilities: the scheduler %s chooses %s", ways[at].Scheduler, ways[at].How)
	}
}
