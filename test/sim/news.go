// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"net/netip"

	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

// stream is one order of events. Those of a stream arrive in that order; those of two
// streams in any.
type stream int

const (
	ofSpecs stream = iota
	ofSlices
	ofNode
	ofCIDRs
	// ofHosts is that of the host's addresses.
	ofHosts
	streams
)

// news is one thing that the API or the host says.
type news struct {
	of stream
	// learn makes a picture follow, and returns the Services that are different then.
	// Everybody stands for all.
	learn func(*picture) (changed []int)
	// tell tells a process.
	tell func(*process)
}

// everybody is the answer of news that change all Services. One that says something of a Service may
// take frontends from others, or give them back.
var everybody []int

// newsOf returns what an event makes the API or the host say.
func newsOf(e event, now *picture) []news {
	switch e.do {
	case setService, rejectService, stallService, hangService, breakService:
		return []news{specNews(e)}
	case removeService:
		return []news{{ofSpecs,
			func(p *picture) []int { delete(p.specs, e.n); return everybody },
			func(to *process) { to.cache.RemoveSpec(keyOf(e.n)) }}}
	case setSlice:
		return []news{sliceNews(e, e.n)}
	case moveSlice:
		// Owners are of the same namespace: every third Service.
		return []news{sliceNews(e, (e.n+3*(1+int(e.variant%3)))%services)}
	case removeSlice:
		return []news{removeSliceNews(e)}
	case rejectMany:
		return rejectManyNews(e, now)
	default:
		return factNews(e)
	}
}

// factNews returns what an event says that concerns all Services.
func factNews(e event) []news {
	switch e.do {
	case setNode:
		node := nodeOf(e.variant)
		return []news{{ofNode,
			func(p *picture) []int { p.node = node; return everybody },
			func(to *process) { again := *node; to.cache.SetNode(&again) }}}
	case setCIDRs:
		cidrs := cidrsOf(e.variant)
		return []news{{ofCIDRs,
			func(p *picture) []int { p.cidrs = cidrs; return everybody },
			func(to *process) { to.cache.SetServiceCIDR("kubernetes", cidrs) }}}
	case setHosts:
		hosts := hostsOf(e.variant)
		return []news{{ofHosts,
			func(p *picture) []int { p.hosts = hosts; return everybody },
			func(to *process) { to.setHosts(hosts) }}}
	default:
		return nil
	}
}

func specNews(e event) news {
	spec := specOf(e.n, e.variant)
	switch e.do {
	case rejectService:
		spec.Ports[0].Port = rejectedPorts + uint16(e.m)
	case stallService:
		spec.Ports[0].Port = stalledPorts + uint16(e.m)
	case hangService:
		spec.Ports[0].Port = hungPorts + uint16(e.m)
	case breakService:
		spec.Ports[0].Port = brokenPorts + uint16(e.m)
	}
	return setSpecNews(e.n, spec)
}

func setSpecNews(n int, spec *service.Spec) news {
	return news{ofSpecs,
		func(p *picture) []int { p.specs[n] = spec; return everybody },
		func(to *process) { to.cache.SetSpec(spec) }}
}

// rejectManyNews lets the kernel reject Services that exist: one in e.n.
func rejectManyNews(e event, now *picture) []news {
	all := []news{}
	d := newRandom(e.variant, e.n)
	defect := e.m
	for n := range services {
		chosen := d.IntN(max(e.n, 1)) == 0
		if before := now.specs[n]; before != nil && chosen {
			spec := *before
			spec.Ports = append([]service.Port(nil), before.Ports...)
			spec.Ports[0].Port = rejectedPorts + uint16(defect)
			all = append(all, setSpecNews(n, &spec))
		}
		defect++
	}
	return all // not nil: the event is the API's
}

// sliceNews changes the slice's owner, and its owner before.
func sliceNews(e event, owner int) news {
	slice := sliceOf(e.n, e.m, owner, e.variant)
	return news{ofSlices,
		func(p *picture) []int {
			changed := []int{owner}
			if before, known := p.owners[slice.Name]; known && before != owner {
				changed = append(changed, before)
			}
			p.slices[slice.Name], p.owners[slice.Name] = slice, owner
			return changed
		},
		func(to *process) { to.cache.SetSlice(slice) }}
}

func removeSliceNews(e event) news {
	name := sliceName(e.n, e.m)
	return news{ofSlices,
		func(p *picture) []int {
			delete(p.slices, name)
			if owner, known := p.owners[name]; known {
				return []int{owner}
			}
			return []int{}
		},
		func(to *process) { to.cache.RemoveSlice(keyOf(e.n).Namespace, name) }}
}

// listed returns a whole list, in the order of d: it replaces what is known of a stream.
func listed(of stream, from picture, d random) news {
	switch of {
	case ofSpecs:
		return news{of, func(p *picture) []int { p.specs = from.clone().specs; return everybody },
			func(to *process) { to.cache.ReplaceSpecs(mixed(d, copies(from.specs))) }}
	case ofSlices:
		return news{of, func(p *picture) []int {
			c := from.clone()
			p.slices, p.owners = c.slices, c.owners
			return everybody
		}, func(to *process) { to.cache.ReplaceSlices(mixed(d, copies(from.slices))) }}
	case ofNode:
		return news{of, func(p *picture) []int { p.node = from.node; return everybody }, func(to *process) {
			if from.node != nil {
				again := *from.node
				to.cache.SetNode(&again)
			}
		}}
	case ofCIDRs:
		return news{of, func(p *picture) []int { p.cidrs = from.cidrs; return everybody }, func(to *process) {
			to.cache.ReplaceServiceCIDRs(map[string][]netip.Prefix{"kubernetes": from.cidrs})
		}}
	default:
		return news{of, func(p *picture) []int { p.hosts = from.hosts; return everybody },
			func(to *process) { to.setHosts(from.hosts) }}
	}
}

// copies returns new values that equal the old ones, as each list of the API has them.
func copies[K comparable, V any](of map[K]*V) (all []*V) {
	for _, v := range of {
		again := *v
		all = append(all, &again)
	}
	return all
}

func mixed[T any](d random, all []T) []T {
	d.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// announceAgain announces everything that a process has been told once more, in new values
// that equal the old ones, and a slice that belongs to no Service.
func announceAgain(told *picture, cache *source.Cache) {
	for _, spec := range copies(told.specs) {
		cache.SetSpec(spec)
	}
	for _, slice := range copies(told.slices) {
		slice.Trigger = epoch
		cache.SetSlice(slice)
	}
	if told.node != nil {
		again := *told.node
		cache.SetNode(&again)
	}
	orphan := sliceOf(0, 99, 0, 1)
	orphan.Service.Name, orphan.Name = "nobody", "nobody-1"
	cache.SetSlice(orphan)
	cache.RemoveSlice(orphan.Service.Namespace, orphan.Name)
}

// cidrsOf returns the ranges of ClusterIPs: none, one family's, or both.
func cidrsOf(variant uint64) (all []netip.Prefix) {
	d := newRandom(variant, nodeActor)
	for _, family := range service.Families {
		if d.percent(60) {
			all = append(all, netip.PrefixFrom(clusterIP(family, 0), []int{24, 112}[family]))
		}
	}
	return all
}

// nodeSettingsOf returns settings of the node.
func nodeSettingsOf(d random) proxy.NodeSettings {
	s := settings{node: proxy.NodeSettings{Name: thisNode, MasqueradeAll: d.percent(15)}}
	if d.percent(30) {
		s.node.NodePortRanges = nodePortRanges()
	}
	s.detectLocal(d)
	return s.node
}

func (s stream) String() string {
	return [...]string{"Services", "slices", "node", "ServiceCIDRs", "host addresses"}[s]
}

var _ fmt.Stringer = stream(0)
