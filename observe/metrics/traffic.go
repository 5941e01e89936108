package metrics

import (
	"context"
	"net/netip"
	"sync"

	"github.com/sluice-proxy/sluice/service"
)

// Counters are what a kernel has counted at a frontend.
type Counters struct {
	Connections uint64
	BytesIn     uint64
	BytesOut    uint64
}

func (c Counters) plus(other Counters) Counters {
	return Counters{c.Connections + other.Connections, c.BytesIn + other.BytesIn, c.BytesOut + other.BytesOut}
}

// owners knows which Service owns each frontend applied. A contested frontend belongs to the
// Service that was programmed first, until it lets go. A nil owners, where the kernel does not
// count, remembers nothing.
type owners struct {
	mu sync.Mutex
	// of has node ports without addresses, in a map for each family.
	of service.PerFamily[map[service.Frontend]service.Key]
	// by has the frontends of each Service.
	by service.PerFamily[map[service.Key][]service.Frontend]
}

func newOwners() *owners {
	o := &owners{}
	for _, family := range service.Families {
		o.of[family] = map[service.Frontend]service.Key{}
		o.by[family] = map[service.Key][]service.Frontend{}
	}
	return o
}

// put replaces the frontends of a Service in one family.
func (o *owners) put(family service.Family, key service.Key, ports []service.PortView) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range o.by[family][key] {
		delete(o.of[family], f)
	}
	delete(o.by[family], key)
	var all []service.Frontend
	for _, f := range frontendsOf(ports) {
		if _, taken := o.of[family][f]; !taken {
			o.of[family][f] = key
			all = append(all, f)
		}
	}
	if all != nil {
		o.by[family][key] = all
	}
}

// end forgets a Service.
func (o *owners) end(key service.Key) {
	for _, family := range service.Families {
		o.put(family, key, nil)
	}
}

func frontendsOf(ports []service.PortView) (all []service.Frontend) {
	for i := range ports {
		p := &ports[i]
		add := func(addr netip.Addr, port uint16) {
			all = append(all, service.Frontend{Addr: addr, Port: port, Protocol: p.Protocol})
		}
		if p.ClusterIP.IsValid() {
			add(p.ClusterIP, p.Port)
		}
		for _, addr := range p.ExternalIPs {
			add(addr, p.Port)
		}
		for _, addr := range p.LoadBalancerVIPs {
			add(addr, p.Port)
		}
		if p.NodePort != 0 {
			add(netip.Addr{}, p.NodePort)
		}
	}
	return all
}

// sum adds up the counters of each Service. It ignores frontends without an owner.
func (o *owners) sum(counted map[service.Frontend]Counters) service.PerFamily[map[service.Key]Counters] {
	var sums service.PerFamily[map[service.Key]Counters]
	o.mu.Lock()
	defer o.mu.Unlock()
	for f, counters := range counted {
		family := service.FamilyOf(f.Addr)
		key, known := o.of[family][f]
		if !known {
			key, known = o.of[family][service.Frontend{Port: f.Port, Protocol: f.Protocol}]
		}
		if !known {
			continue
		}
		if sums[family] == nil {
			sums[family] = map[service.Key]Counters{}
		}
		sums[family][key] = sums[family][key].plus(counters)
	}
	return sums
}

// counted asks the kernel for its counters, and returns them by Service. If the kernel does not
// answer there are none, which is different from 0.
func (m *Metrics) counted(ctx context.Context) (sums service.PerFamily[map[service.Key]Counters]) {
	if m.owners == nil {
		return sums
	}
	counted, err := m.config.Counters(ctx)
	if err != nil {
		return sums
	}
	return m.owners.sum(counted)
}

// eachCounted visits the counters of a Service in each family in which it has any.
func (a *answer) eachCounted(key service.Key, visit func(family string, c Counters)) {
	for _, family := range service.Families {
		c, known := a.counted[family][key]
		if of := a.relayed[key][family]; of != nil {
			c, known = of.Counters, true
		}
		if known {
			visit(family.String(), c)
		}
	}
}
