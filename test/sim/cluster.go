// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
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

// picture is what somebody knows of the cluster and of the host.
type picture struct {
	settings proxy.NodeSettings
	specs    map[int]*service.Spec
	slices   map[string]*service.Slice
	// owners holds the number of the last owner of each slice, by the slice's name.
	owners map[string]int
	node   *service.NodeObject
	cidrs  []netip.Prefix
	hosts  []netip.Addr
	// made has the specs with what they are denied.
	made *admittedSpecs
	// last has the owners of the frontends of certain specs.
	last struct {
		specs  map[int]*service.Spec
		owners map[place]int
	}
}

func newPicture(settings proxy.NodeSettings, hosts []netip.Addr) picture {
	return picture{settings: settings, hosts: hosts,
		made: &admittedSpecs{}, specs: map[int]*service.Spec{}, slices: map[string]*service.Slice{}, owners: map[string]int{}}
}

func (p *picture) clone() picture {
	c := *p
	c.specs, c.slices, c.owners = maps.Clone(p.specs), maps.Clone(p.slices), maps.Clone(p.owners)
	return c
}

// state returns a Service as it is served among all that are known.
func (p *picture) state(n int) state { return p.stateAmong(n, p.frontendOwners()) }

func (p *picture) stateAmong(n int, owners map[place]int) state {
	s := state{spec: p.admitted(n, owners), facts: p.facts()}
	for _, name := range slices.Sorted(maps.Keys(p.slices)) {
		if p.owners[name] == n {
			s.slices = append(s.slices, p.slices[name])
		}
	}
	return s
}

// cluster is what the API and the host say now. Everything expected is computed from it.
// It is for one goroutine at a time: the feed's lock guards it while news are under way.
type cluster struct {
	picture
	// told is what the process has been told of it.
	told    picture
	defects *defects
	// changed, when set, is told each state of a Service.
	changed func(n int, s state)
	// histories holds, by family and Service, the states that may be in the kernel while
	// the present one is held back, newest last. The first is that of the last check.
	histories service.PerFamily[map[int][]state]
	// rejected holds, likewise, the states that were announced while they were held back. The
	// proxy may still try any of them when their defects end.
	rejected service.PerFamily[map[int][]state]
	// former has the node's facts of each time, newest last.
	former []*service.NodeFacts
}

// formerMax is how many facts are remembered.
const formerMax = 20

// noteFacts remembers the node's facts.
func (c *cluster) noteFacts(f *service.NodeFacts) {
	c.former = slices.DeleteFunc(c.former, f.Equal)
	if c.former = append(c.former, f); len(c.former) > formerMax {
		c.former = c.former[1:]
	}
}

func newCluster(settings proxy.NodeSettings) *cluster {
	c := &cluster{
		picture: newPicture(settings, hostsOf(0)), told: newPicture(settings, hostsOf(0)), defects: &defects{},
	}
	for _, family := range service.Families {
		c.histories[family], c.rejected[family] = map[int][]state{}, map[int][]state{}
	}
	c.noteFacts(c.facts())
	return c
}

// numbers returns every Service that ever existed, in order.
func (c *cluster) numbers() []int { return slices.Sorted(maps.Keys(c.histories[service.IPv4])) }

// record notes that Service n is something else now, for the API or for the process.
func (c *cluster) record(n int, now state) {
	if c.changed != nil {
		c.changed(n, now)
	}
	for _, family := range service.Families {
		all := c.histories[family]
		if len(all[n]) == 0 {
			all[n] = []state{{facts: now.facts}} // it did not exist
		}
		if c.defects.holdBack(now.spec, family) {
			all = c.rejected[family]
		}
		if len(all[n]) == 0 || !all[n][len(all[n])-1].equal(now) {
			all[n] = append(all[n], now)
		}
	}
}

// recordAll notes what all Services are for somebody.
func (c *cluster) recordAll(p *picture) {
	owners := p.frontendOwners()
	all := append(c.numbers(), slices.Collect(maps.Keys(p.specs))...)
	slices.Sort(all)
	for _, n := range slices.Compact(all) {
		c.record(n, p.stateAmong(n, owners))
	}
}

// settled records which state of a Service is in a family's kernel.
func (c *cluster) settled(family service.Family, s served) {
	c.histories[family][s.n] = []state{s.state}
	if all := c.rejected[family][s.n]; c.heldBack(s.n, family) && len(all) > 0 {
		c.rejected[family][s.n] = all[len(all)-1:]
	} else {
		delete(c.rejected[family], s.n)
	}
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
func (p *picture) facts() *service.NodeFacts {
	s := p.settings
	f := &service.NodeFacts{Name: s.Name, MasqueradeAll: s.MasqueradeAll}
	for _, cidr := range slices.SortedFunc(slices.Values(p.cidrs), netip.Prefix.Compare) {
		family := service.FamilyOf(cidr.Addr())
		f.ServiceCIDRs[family] = append(f.ServiceCIDRs[family], cidr)
	}
	for _, family := range service.Families {
		limited := false
		for _, r := range s.NodePortRanges {
			if service.FamilyOf(r.Addr()) != family {
				continue
			}
			limited = true
			for _, a := range p.hosts {
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
			if p.node != nil {
				f.Detect[family].CIDR = p.node.PodCIDRs[family]
			}
		default:
			f.Detect[family].CIDR = s.ClusterCIDRs[family]
		}
	}
	if p.node != nil {
		f.Zone = p.node.Zone
		for _, a := range slices.Backward(p.node.Addresses) {
			f.NodeIPs[service.FamilyOf(a)] = a
		}
	}
	return f
}

// repairAll ends all defects that exist now.
func (c *cluster) repairAll() {
	for _, spec := range c.specs {
		c.defects.repair(spec.Ports[0].Port)
	}
	for _, family := range service.Families {
		for n, all := range c.rejected[family] {
			for _, s := range all {
				if !c.defects.holdBack(s.spec, family) {
					c.histories[family][n] = append(c.histories[family][n], s)
				}
			}
		}
	}
	c.recordAll(&c.picture)
}
