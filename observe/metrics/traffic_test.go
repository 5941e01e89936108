package metrics

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

func at(addr string, port uint16) service.Frontend {
	f := service.Frontend{Port: port, Protocol: service.TCP}
	if addr != "" {
		f.Addr = netip.MustParseAddr(addr)
	}
	return f
}

// served is a service port with every kind of frontend.
func served(clusterIP, vip string, nodePort uint16) []service.PortView {
	p := service.PortView{Port: 80, Protocol: service.TCP, NodePort: nodePort, ClusterIP: netip.MustParseAddr(clusterIP)}
	if vip != "" {
		p.LoadBalancerVIPs = []netip.Addr{netip.MustParseAddr(vip)}
	}
	return []service.PortView{p}
}

// TestTrafficIsTheOwners: a node port counts at every address of the node, a contested frontend for
// one Service, and a frontend without an owner for none.
func TestTrafficIsTheOwners(t *testing.T) {
	o := newOwners()
	one, two := serviceKey(1), serviceKey(2)
	o.put(service.IPv4, one, served("10.0.0.1", "192.0.2.1", 30080))
	o.put(service.IPv4, two, served("10.0.0.2", "192.0.2.1", 0))
	o.put(service.IPv6, two, served("fd00::2", "", 30080))
	counted := map[service.Frontend]Counters{
		at("10.0.0.1", 80): {1, 10, 100}, at("192.0.2.1", 80): {2, 20, 200}, at("172.16.0.1", 30080): {4, 40, 400}, at("172.16.0.2", 30080): {8, 80, 800},
		at("10.0.0.2", 80): {16, 0, 0}, at("fd00::9", 30080): {32, 0, 0}, at("203.0.113.1", 443): {64, 0, 0},
	}
	expect := func(when string, v4one, v4two, v6two uint64) {
		t.Helper()
		sums := o.sum(counted)
		if got := sums[service.IPv4][one].Connections; got != v4one {
			t.Errorf("%s: %d for the first Service, want %d", when, got, v4one)
		}
		if got := sums[service.IPv4][two].Connections; got != v4two {
			t.Errorf("%s: %d for the second Service, want %d", when, got, v4two)
		}
		if got := sums[service.IPv6][two].Connections; got != v6two {
			t.Errorf("%s: %d for the second Service in IPv6, want %d", when, got, v6two)
		}
	}
	expect("both", 15, 16, 32)
	o.put(service.IPv4, one, served("10.0.0.1", "", 30080))
	o.put(service.IPv4, two, served("10.0.0.2", "192.0.2.1", 0))
	expect("the first has let go", 13, 18, 32)
	o.end(two)
	expect("the second has gone", 13, 0, 0)
	o.end(one)
	for _, family := range service.Families {
		if len(o.of[family])+len(o.by[family]) != 0 {
			t.Errorf("%s: something is left: %v, %v", family, o.of[family], o.by[family])
		}
	}
	var none *owners
	none.put(service.IPv4, one, served("10.0.0.1", "", 0)) // the kernel does not count
	none.end(one)
}

// count makes the kernel of the world count, and Service 1 own 10.9.0.1.
func (w *world) count(counted map[service.Frontend]Counters, err error) {
	w.config.Counters = func(context.Context) (map[service.Frontend]Counters, error) { return counted, err }
	w.owners = newOwners()
	view := service.View{Key: serviceKey(1)}
	view.Ports[service.IPv4] = served("10.9.0.1", "", 0)
	w.Programmed(context.Background(), service.IPv4, view)
}

// TestTrafficIsShown, and left out while the kernel does not answer.
func TestTrafficIsShown(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cache.SetSpec(spec(1))
		w.prime()
		counted := map[service.Frontend]Counters{at("10.9.0.1", 80): {3, 30, 300}}
		w.count(counted, nil)
		connections := sampleOf(1, "sluice_service_connections_total", `ip_family="IPv4"`)
		askText(t, w.Metrics, "").expect(t, samples{
			connections: 3,
			sampleOf(1, "sluice_service_bytes_total", `direction="in"`, `ip_family="IPv4"`):  30,
			sampleOf(1, "sluice_service_bytes_total", `direction="out"`, `ip_family="IPv4"`): 300,
		})
		w.count(counted, errors.New("no"))
		askText(t, w.Metrics, "").expect(t, samples{connections: absent})
	})
}
