package sim

import (
	"maps"
	"net/netip"
	"slices"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

// state is one Service at one moment, with the node facts of that moment.
type state struct {
	spec   *service.Spec
	slices []*service.Slice
	facts  *service.NodeFacts
}

func (s state) view(key service.Key) service.View {
	return service.Resolve(key, s.spec, s.slices, s.facts)
}

func (s state) equal(other state) bool {
	return s.spec == other.spec && slices.Equal(s.slices, other.slices) && s.facts.Equal(other.facts)
}

// cluster is what the API and the host say now. Everything expected is computed from it.
// It is for one goroutine at a time.
type cluster struct {
	settings proxy.NodeSettings
	defects  *defects
	specs    map[int]*service.Spec
	slices   map[string]*service.Slice
	// owners holds the number of the last owner of each slice, by the slice's name.
	owners map[string]int
	node   *service.NodeObject
	hosts  []netip.Addr
	// changed, when set, is told each state of a Service.
	changed func(n int, s state)
	// histories holds, by family and Service, the states that may be in the kernel while
	// the present one is held back, newest last. The first is that of the last check.
	histories service.PerFamily[map[int][]state]
}

func newCluster(settings proxy.NodeSettings) *cluster {
	c := &cluster{
		settings: settings, defects: &defects{},
		specs: map[int]*service.Spec{}, slices: map[string]*service.Slice{}, owners: map[string]int{},
		hosts: hostsOf(0),
	}
	for _, family := range service.Families {
		c.histories[family] = map[int][]state{}
	}
	return c
}

// numbers returns every Service that ever existed, in order.
func (c *cluster) numbers() []int { return slices.Sorted(maps.Keys(c.histories[service.IPv4])) }

func (c *cluster) state(n int) state {
	s := state{spec: c.specs[n], facts: c.facts()}
	for _, name := range slices.Sorted(maps.Keys(c.slices)) {
		if c.owners[name] == n {
			s.slices = append(s.slices, c.slices[name])
		}
	}
	return s
}

// record notes that Service n has changed.
func (c *cluster) record(n int) {
	now := c.state(n)
	if c.changed != nil {
		c.changed(n, now)
	}
	for _, family := range service.Families {
		all := c.histories[family]
		if len(all[n]) == 0 {
			all[n] = []state{{facts: now.facts}} // it did not exist
		}
		if last := all[n][len(all[n])-1]; !c.defects.holdBack(now.spec, family) && !last.equal(now) {
			all[n] = append(all[n], now)
		}
	}
}

func (c *cluster) recordAll() {
	for _, n := range c.numbers() {
		c.record(n)
	}
}

// settled records which state of a Service is in a family's kernel.
func (c *cluster) settled(family service.Family, s served) {
	c.histories[family][s.n] = []state{s.state}
}

func (c *cluster) heldBack(n int, family service.Family) bool {
	return c.defects.holdBack(c.specs[n], family)
}

// candidates returns the states of a Service of which one has to be in a family's kernel.
func (c *cluster) candidates(n int, family service.Family) []state {
	if c.heldBack(n, family) {
		return c.histories[family][n]
	}
	return []state{c.state(n)}
}

// facts derives the node facts as the documentation of NodeSettings says.
func (c *cluster) facts() *service.NodeFacts {
	s := c.settings
	f := &service.NodeFacts{Name: s.Name, MasqueradeAll: s.MasqueradeAll}
	for _, family := range service.Families {
		limited := false
		for _, r := range s.NodePortRanges {
			if service.FamilyOf(r.Addr()) != family {
				continue
			}
			limited = true
			for _, a := range c.hosts {
				if r.Contains(a) && !a.IsLoopback() {
					f.NodePorts[family].Addresses = append(f.NodePorts[family].Addresses, a)
				}
			}
		}
		f.NodePorts[family].All = !limited
		slices.SortFunc(f.NodePorts[family].Addresses, netip.Addr.Compare)
		switch s.DetectLocal {
		case proxy.DetectBridgeInterface:
			f.Detect[family].Interface = s.Interface
		case proxy.DetectInterfaceNamePrefix:
			f.Detect[family].Interface = s.Interface + "+"
		case proxy.DetectNodeCIDR:
			if c.node != nil {
				f.Detect[family].CIDR = c.node.PodCIDRs[family]
			}
		default:
			f.Detect[family].CIDR = s.ClusterCIDRs[family]
		}
	}
	if c.node != nil {
		f.Zone = c.node.Zone
		for _, a := range slices.Backward(c.node.Addresses) {
			f.NodeIPs[service.FamilyOf(a)] = a
		}
	}
	return f
}

// apply makes the cluster follow an event and returns what the source has to tell the
// cache; nil for events that are not the API's.
func (c *cluster) apply(e event) func(*source.Cache) {
	switch e.do {
	case setService, rejectService, breakService:
		return c.setSpec(e)
	case removeService:
		delete(c.specs, e.n)
		c.record(e.n)
		return func(cache *source.Cache) { cache.RemoveSpec(keyOf(e.n)) }
	case setSlice:
		return c.setSlice(e, e.n)
	case moveSlice:
		// Owners are of the same namespace: every third Service.
		return c.setSlice(e, (e.n+3*(1+int(e.variant%3)))%services)
	case removeSlice:
		return c.removeSlice(e)
	case setNode:
		c.node = nodeOf(e.variant)
		c.recordAll()
		node := *c.node
		return func(cache *source.Cache) { cache.SetNode(&node) }
	default:
		return nil
	}
}

func (c *cluster) setSpec(e event) func(*source.Cache) {
	spec := specOf(e.n, e.variant)
	switch e.do {
	case rejectService:
		spec.Ports[0].Port = rejectedPorts + uint16(e.m)
	case breakService:
		spec.Ports[0].Port = brokenPorts + uint16(e.m)
	}
	c.specs[e.n] = spec
	c.record(e.n)
	return func(cache *source.Cache) { cache.SetSpec(spec) }
}

// setSlice changes the slice's owner, and its owner before.
func (c *cluster) setSlice(e event, owner int) func(*source.Cache) {
	slice := sliceOf(e.n, e.m, owner, e.variant)
	before, known := c.owners[slice.Name]
	c.slices[slice.Name], c.owners[slice.Name] = slice, owner
	c.record(owner)
	if known {
		c.record(before)
	}
	return func(cache *source.Cache) { cache.SetSlice(slice) }
}

func (c *cluster) removeSlice(e event) func(*source.Cache) {
	name := sliceName(e.n, e.m)
	delete(c.slices, name)
	if owner, known := c.owners[name]; known {
		c.record(owner)
	}
	return func(cache *source.Cache) { cache.RemoveSlice(keyOf(e.n).Namespace, name) }
}

// clear removes everything that the API knows, except the node.
func (c *cluster) clear() func(*source.Cache) {
	clear(c.specs)
	clear(c.slices)
	c.recordAll()
	return func(cache *source.Cache) {
		cache.ReplaceSpecs(nil)
		cache.ReplaceSlices(nil)
	}
}

// repeat announces everything again, in new values that equal the old ones, and a slice
// that belongs to no Service.
func (c *cluster) repeat() func(*source.Cache) {
	var calls []func(*source.Cache)
	for _, spec := range c.specs {
		again := *spec
		calls = append(calls, func(cache *source.Cache) { cache.SetSpec(&again) })
	}
	for _, slice := range c.slices {
		again := *slice
		again.Trigger = epoch
		calls = append(calls, func(cache *source.Cache) { cache.SetSlice(&again) })
	}
	if c.node != nil {
		again := *c.node
		calls = append(calls, func(cache *source.Cache) { cache.SetNode(&again) })
	}
	return func(cache *source.Cache) {
		for _, call := range calls {
			call(cache)
		}
		orphan := sliceOf(0, 99, 0, 1)
		orphan.Service.Name, orphan.Name = "nobody", "nobody-1"
		cache.SetSlice(orphan)
		cache.RemoveSlice(orphan.Service.Namespace, orphan.Name)
	}
}

// repairAll ends all defects that exist now.
func (c *cluster) repairAll() {
	for _, spec := range c.specs {
		c.defects.repair(spec.Ports[0].Port)
	}
	c.recordAll()
}
