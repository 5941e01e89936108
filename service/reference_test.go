package service

import (
	"net/netip"
	"slices"
	"strings"
)

// reference is endpoint selection once more, as a plain reading of the rules:
// with maps and texts, slow, and sharing nothing with Resolve but the inputs.
type reference struct {
	cluster, local, serving []string
	any                     bool
}

// occurrence is where an endpoint was found.
type occurrence struct {
	slice    string
	index    int
	endpoint *SliceEndpoint
}

// better reports whether a is to be used rather than b.
func (a occurrence) better(b occurrence) bool {
	rank := func(e *SliceEndpoint) int {
		switch {
		case e.Ready && !e.Terminating:
			return 4
		case e.Ready:
			return 3
		case e.Serving && e.Terminating:
			return 2
		case e.Serving:
			return 1
		}
		return 0
	}
	if x, y := rank(a.endpoint), rank(b.endpoint); x != y {
		return x > y
	}
	if a.slice != b.slice {
		return a.slice < b.slice
	}
	return a.index < b.index
}

// find returns the best occurrence of each endpoint behind a port, by its text.
func find(port *PortView, family Family, from []*Slice) map[string]occurrence {
	known := map[string]occurrence{}
	for _, s := range from {
		for _, p := range s.Ports {
			if s.Family != family || p.Name != port.Name || p.Protocol != port.Protocol {
				continue
			}
			for i := range s.Endpoints {
				text := netip.AddrPortFrom(s.Endpoints[i].Addr, p.Port).String()
				o := occurrence{s.Name, i, &s.Endpoints[i]}
				if old, ok := known[text]; !ok || o.better(old) {
					known[text] = o
				}
			}
		}
	}
	return known
}

// refer selects the endpoints of one port of the view.
func refer(port *PortView, family Family, from []*Slice, node *NodeFacts) reference {
	known := find(port, family, from)
	pick := func(wanted func(e *SliceEndpoint) bool) (texts []string) {
		for text, o := range known {
			if wanted(o.endpoint) {
				texts = append(texts, text)
			}
		}
		slices.Sort(texts)
		return texts
	}
	ready := func(e *SliceEndpoint) bool { return e.Ready }
	fallback := func(e *SliceEndpoint) bool { return e.Serving && e.Terminating }
	here := func(e *SliceEndpoint) bool { return e.NodeName == node.Name }
	forNode := func(e *SliceEndpoint) bool { return slices.Contains(e.ForNodes, node.Name) }
	forZone := func(e *SliceEndpoint) bool { return node.Zone != "" && slices.Contains(e.ForZones, node.Zone) }
	with := func(f ...func(*SliceEndpoint) bool) func(*SliceEndpoint) bool {
		return func(e *SliceEndpoint) bool {
			return !slices.ContainsFunc(f, func(f func(*SliceEndpoint) bool) bool { return !f(e) })
		}
	}
	first := func(lists ...[]string) []string {
		for _, list := range lists {
			if len(list) > 0 {
				return list
			}
		}
		return nil
	}

	r := reference{any: len(pick(ready))+len(pick(fallback)) > 0}
	nodeless := func(e *SliceEndpoint) bool { return len(e.ForNodes) == 0 }
	zoneless := func(e *SliceEndpoint) bool { return len(e.ForZones) == 0 }
	if !port.InternalLocal || port.ExternallyAccessible() {
		var byNode, byZone []string
		if len(pick(with(ready, nodeless))) == 0 {
			byNode = pick(with(ready, forNode))
		}
		if len(pick(with(ready, zoneless))) == 0 {
			byZone = pick(with(ready, forZone))
		}
		r.cluster = first(byNode, byZone, pick(ready), pick(fallback))
	}
	if port.InternalLocal || (port.ExternalLocal && port.ExternallyAccessible()) {
		r.local = first(pick(with(ready, here)), pick(with(fallback, here)))
	}
	if port.Protocol == UDP {
		r.serving = pick(func(e *SliceEndpoint) bool { return e.Ready || e.Serving })
	}
	return r
}

// texts returns a set in the reference's form.
func texts(set []Endpoint) []string {
	var list []string
	for _, e := range set {
		list = append(list, e.String())
	}
	return list
}

func (r reference) String() string {
	return "cluster " + strings.Join(r.cluster, " ") +
		", local " + strings.Join(r.local, " ") +
		", serving " + strings.Join(r.serving, " ")
}
