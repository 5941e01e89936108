package metrics

import (
	"context"
	"net/netip"
	"sync"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Traffic is what a kernel has counted.
type Traffic struct {
	Connections, BytesIn, BytesOut uint64
}

func (t Traffic) plus(other Traffic) Traffic {
	return Traffic{t.Connections + other.Connections, t.BytesIn + other.BytesIn, t.BytesOut + other.BytesOut}
}

// owners tells whose each frontend is that is in force. A contested one is the
// Service's that was told first, until it lets go. Nil, where nobody counts, keeps
// nothing.
type owners struct {
	mu sync.Mutex
	// of has node ports without addresses, in a map for each family.
	of service.PerFamily[map[dataplane.Frontend]service.Key]
	// by gives the frontends of a Service.
	by service.PerFamily[map[service.Key][]dataplane.Frontend]
}

func newOwners() *owners {
	o := &owners{}
	for _, family := range service.Families {
		o.of[family] = map[dataplane.Frontend]service.Key{}
		o.by[family] = map[service.Key][]dataplane.Frontend{}
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
	var all []dataplane.Frontend
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

func frontendsOf(ports []service.PortView) (all []dataplane.Frontend) {
	for i := range ports {
		p := &ports[i]
		add := func(addr netip.Addr, port uint16) {
			all = append(all, dataplane.Frontend{Addr: addr, Port: port, Protocol: p.Protocol})
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

// sum gives what belongs to each Service. Frontends of nobody are left out.
func (o *owners) sum(counted map[dataplane.Frontend]Traffic) service.PerFamily[map[service.Key]Traffic] {
	var sums service.PerFamily[map[service.Key]Traffic]
	o.mu.Lock()
	defer o.mu.Unlock()
	for f, traffic := range counted {
		family := service.FamilyOf(f.Addr)
		key, known := o.of[family][f]
		if !known {
			key, known = o.of[family][dataplane.Frontend{Port: f.Port, Protocol: f.Protocol}]
		}
		if !known {
			continue
		}
		if sums[family] == nil {
			sums[family] = map[service.Key]Traffic{}
		}
		sums[family][key] = sums[family][key].plus(traffic)
	}
	return sums
}

// traffic asks the kernel for what it has counted, and gives it by Service; nothing
// when it does not answer, which is no zero.
func (m *Metrics) traffic(ctx context.Context) service.PerFamily[map[service.Key]Traffic] {
	if m.owners == nil {
		return service.PerFamily[map[service.Key]Traffic]{}
	}
	counted, err := m.config.Traffic(ctx)
	if err != nil {
		return service.PerFamily[map[service.Key]Traffic]{}
	}
	return m.owners.sum(counted)
}

// sampleTraffic gives a sample for each family in which something was counted.
func sampleTraffic(s *services, l *line, each func(label string, t Traffic)) {
	for _, family := range service.Families {
		if t, known := s.traffic[family][l.key]; known {
			each(`,ip_family="`+family.String()+`"`, t)
		}
	}
}

// trafficMetrics exist in modes in which the kernel counts by frontend.
var trafficMetrics = []serviceMetric{
	{"sluice_service_connections_total", kindCounter, "Connections and flows that the kernel has given to an endpoint, since it has the Service's virtual servers (mode ipvs).",
		func(s *services, l *line, sample func(string, float64)) {
			sampleTraffic(s, l, func(label string, t Traffic) { sample(label, float64(t.Connections)) })
		}},
	{"sluice_service_bytes_total", kindCounter, "Bytes of packets to and from endpoints by way of the Service's virtual servers, since the kernel has them (mode ipvs).",
		func(s *services, l *line, sample func(string, float64)) {
			sampleTraffic(s, l, func(label string, t Traffic) {
				sample(label+`,direction="in"`, float64(t.BytesIn))
				sample(label+`,direction="out"`, float64(t.BytesOut))
			})
		}},
}

// trafficJSON is what a kernel has counted for one Service in one family.
type trafficJSON struct {
	Connections uint64 `json:"connections"`
	BytesIn     uint64 `json:"bytesIn"`
	BytesOut    uint64 `json:"bytesOut"`
}

func (s *services) trafficJSON(key service.Key) map[string]trafficJSON {
	var made map[string]trafficJSON
	for _, family := range service.Families {
		t, known := s.traffic[family][key]
		if !known {
			continue
		}
		if made == nil {
			made = map[string]trafficJSON{}
		}
		made[family.String()] = trafficJSON(t)
	}
	return made
}
