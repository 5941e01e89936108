package sim

import (
	"maps"
	"net/netip"
	"slices"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/service"
)

// state is one Service at one moment, with the facts that it was seen under.
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

// cluster is what the API and the host say now: the truth that the reference is
// computed from. One goroutine at a time.
type cluster struct {
	settings proxy.NodeSettings
	troubles *troubles
	specs    map[int]*service.Spec
	slices   map[string]*service.Slice
	// owners gives, by the name of a slice, the number of its last owner.
	owners map[string]int
	node   *service.NodeObject
	hosts  []netip.Addr
	// tell, when set, is told each state of a Service.
	tell func(n int, s state)
	// histories holds, by family and Service, the states that may be in the
	// kernel while the present one is held back, newest last. It begins with
	// the one that was there at the last quiet point.
	histories service.PerFamily[map[int][]state]
}

func newCluster(settings proxy.NodeSettings) *cluster {
	c := &cluster{
		settings: settings, troubles: &troubles{},
		specs: map[int]*service.Spec{}, slices: map[string]*service.Slice{}, owners: map[string]int{},
		hosts: shapeHosts(0),
	}
	for _, family := range service.Families {
		c.histories[family] = map[int][]state{}
	}
	return c
}

// numbers gives every Service that was ever heard of, in order.
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

// record takes note that Service n has changed.
func (c *cluster) record(n int) {
	now := c.state(n)
	if c.tell != nil {
		c.tell(n, now)
	}
	for _, family := range service.Families {
		all := c.histories[family]
		if len(all[n]) == 0 {
			all[n] = []state{{facts: now.facts}} // it was not there
		}
		if last := all[n][len(all[n])-1]; !c.troubles.holdsBack(now.spec, family) && !last.equal(now) {
			all[n] = append(all[n], now)
		}
	}
}

func (c *cluster) recordAll() {
	for _, n := range c.numbers() {
		c.record(n)
	}
}

// settled takes note of how a family's kernel has a Service at a quiet point.
func (c *cluster) settled(family service.Family, s served) {
	c.histories[family][s.n] = []state{s.state}
}

func (c *cluster) heldBack(n int, family service.Family) bool {
	return c.troubles.holdsBack(c.specs[n], family)
}

// candidates gives the states of which one has to be in the kernel of a family.
func (c *cluster) candidates(n int, family service.Family) []state {
	if c.heldBack(n, family) {
		return c.histories[family][n]
	}
	return []state{c.state(n)}
}

// facts puts node facts together from what is known, as the documentation of
// NodeSettings says.
func (c *cluster) facts() *service.NodeFacts {
	s := c.settings
	f := &service.NodeFacts{Name: s.Name, MasqueradeAll: s.MasqueradeAll, LocalhostNodePorts: s.LocalhostNodePorts}
	for _, family := range service.Families {
		limited := false
		for _, r := range s.NodePortRanges {
			if service.FamilyOf(r.Addr()) != family {
				continue
			}
			limited = true
			for _, a := range c.hosts {
				if r.Contains(a) && (!a.IsLoopback() || (a.Is4() && s.LocalhostNodePorts)) {
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
