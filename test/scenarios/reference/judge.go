package reference

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// Judge tells how a question has to end. The error is an [Unsure].
func (s *State) Judge(q fixture.Question) (Wanted, error) {
	if err := s.understood(); err != nil {
		return Wanted{}, err
	}
	c, err := s.client(q)
	if err != nil {
		return Wanted{}, err
	}
	all, err := s.frontends(q)
	if err != nil {
		return Wanted{}, err
	}
	var w Wanted
	if len(all) == 0 {
		w, err = s.unserved(q, c)
	} else if err = contested(all, q.Family); err == nil {
		w, err = s.first(all, q, c)
	}
	if err == nil && w.Fate != fixture.Answered && c.node && q.Protocol != service.TCP {
		// The kernel tells the sender that its packet was discarded, whatever the
		// reason.
		return w, unsuref("a datagram of the node that is not let through")
	}
	return w, err
}

// contested tells whether who gets a frontend decides everything.
func contested(all []frontend, family service.Family) error {
	for _, other := range all[1:] {
		if ranges(all[0].of, family) != nil || ranges(other.of, family) != nil {
			return unsuref("source ranges at an address of two frontends")
		}
		if (other.kind == nodePort) != (all[0].kind == nodePort) {
			return unsuref("a node port and an address that is the same")
		}
	}
	return nil
}

// first is how a question ends that several Services claim: the first of them that
// has endpoints serves it.
func (s *State) first(all []frontend, q fixture.Question, c client) (Wanted, error) {
	for _, f := range all {
		known, err := s.endpoints(f.of, f.port, q.Family)
		if err == nil && !pick(known, s.zone()).any {
			continue
		}
		w, err := s.served(f, q, c)
		if err == nil && len(all) > 1 && w.Fate == fixture.Silent {
			return w, unsuref("%s would be silent where others may refuse", f.of.Name)
		}
		return w, err
	}
	return s.served(all[0], q, c)
}

// served is how a question to a Service ends.
func (s *State) served(f frontend, q fixture.Question, c client) (Wanted, error) {
	known, err := s.endpoints(f.of, f.port, q.Family)
	if err != nil {
		return Wanted{}, err
	}
	set := pick(known, s.zone())
	r := s.route(f, q, c, set)
	if f.kind == balancer && !allowed(f.of, q.Family, c.address) && (set.any || s.options.Mode == "nftables") {
		return Wanted{Fate: fixture.Silent}, nil
	}
	switch {
	case !set.any:
		return Wanted{Fate: fixture.Refused}, nil
	case len(r.to) == 0:
		return Wanted{Fate: fixture.Silent}, nil
	}
	w := Wanted{Sources: make(map[string]fixture.Source), Sticky: f.of.Spec.SessionAffinity == corev1.ServiceAffinityClientIP}
	for _, e := range r.to {
		name := fixture.WhoIs(e.at)
		if name == "" || name == fixture.Beyond {
			return w, unsuref("nobody is known to be at %v", e.at)
		}
		if w.Sources[name], err = seen(e, q, c, r.masked); err != nil {
			return w, err
		}
	}
	return w, nil
}

// route is where a client's connections are sent, and whether they get the node's
// address.
type route struct {
	to     []endpoint
	masked bool
}

func (s *State) route(f frontend, q fixture.Question, c client, set selection) route {
	if f.kind == clusterIP {
		r := route{set.cluster, s.flag("masquerade-all", "false") == "true" || (c.detect && !c.pod)}
		if p := f.of.Spec.InternalTrafficPolicy; p != nil && *p == corev1.ServiceInternalTrafficPolicyLocal {
			r.to = set.local
		}
		return r
	}
	switch {
	case !local(f.of):
		return route{set.cluster, true}
	case c.pod:
		return route{set.cluster, false}
	case c.node:
		return route{set.cluster, true}
	default:
		return route{set.local, false}
	}
}

// seen tells whom an endpoint takes for the client.
func seen(e endpoint, q fixture.Question, c client, masked bool) (fixture.Source, error) {
	onNode := own(e.at.Addr())
	switch {
	case c.node:
		return fixture.AsNode, nil
	case onNode && masked:
		return "", nil // what stays on the node does not pass where addresses are replaced
	case masked:
		return fixture.AsNode, nil
	case c.far && !contains(farPods(q.Family), e.at.Addr()):
		return fixture.AsClient, nil
	case c.far:
		return "", unsuref("the answer takes a way around the node")
	case e.at.Addr() == c.address && !e.local:
		return "", unsuref("a pod of this node that its slice does not place here is sent to itself")
	case e.at.Addr() == c.address:
		return fixture.AsNode, nil
	default:
		return fixture.AsClient, nil
	}
}

// farPods is the range of the pods of the other node.
func farPods(family service.Family) []netip.Prefix {
	return []netip.Prefix{fixture.MustPrefix(family, "pods2")}
}

// ranges gives the source ranges of a Service in a family, nil if everybody is
// allowed.
func ranges(of *corev1.Service, family service.Family) []netip.Prefix {
	all := prefixes(of.Spec.LoadBalancerSourceRanges, family)
	for _, r := range all {
		if r.Bits() == 0 {
			return nil
		}
	}
	return all
}

func allowed(of *corev1.Service, family service.Family, a netip.Addr) bool {
	all := ranges(of, family)
	return len(all) == 0 || contains(all, a)
}

// unserved is how a question ends that is to no Service.
func (s *State) unserved(q fixture.Question, c client) (Wanted, error) {
	to := q.To.Addr()
	if own(to) {
		if q.To.Port() != fixture.ServicePort && q.To.Port() < 30000 {
			return Wanted{}, unsuref("somebody may listen at %v", q.To)
		}
		return Wanted{Fate: fixture.Refused}, nil
	}
	if s.options.Mode == "nftables" {
		for _, of := range s.services {
			if clusterAddress(of, q.Family) == to {
				return Wanted{Fate: fixture.Refused}, nil
			}
		}
		for _, texts := range s.cidrs {
			if contains(prefixes(texts, q.Family), to) {
				return Wanted{Fate: fixture.Silent}, nil
			}
		}
	}
	if fixture.WhoIs(q.To) != fixture.Beyond {
		return Wanted{}, unsuref("nobody is known to be at %v", q.To)
	}
	if c.node {
		return Wanted{Sources: map[string]fixture.Source{fixture.Beyond: fixture.AsNode}}, nil
	}
	return Wanted{Sources: map[string]fixture.Source{fixture.Beyond: fixture.AsClient}}, nil
}
