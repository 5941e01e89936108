package conntrack

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

func TestNewPicture(t *testing.T) {
	serving := []service.Endpoint{{AddrPort: at("10.0.2.10:5353")}, {AddrPort: at("10.0.2.9:5353"), Local: true}}
	addrs := func(texts ...string) (all []netip.Addr) {
		for _, text := range texts {
			all = append(all, netip.MustParseAddr(text))
		}
		return all
	}
	view := service.View{Key: named("dns")}
	view.Ports[service.IPv4] = []service.PortView{
		{Name: "tcp", Protocol: service.TCP, Port: 53, ClusterIP: at(clusterIP).Addr(), NodePort: 30001},
		{
			Name: "udp", Protocol: service.UDP, Port: 53, ClusterIP: at(clusterIP).Addr(), NodePort: 30053,
			LoadBalancerVIPs: addrs("198.51.100.7", "198.51.100.8"), ExternalIPs: addrs("198.51.100.8", "192.0.2.1"),
			Serving: serving, Cluster: serving[:1],
		},
		{Name: "more", Protocol: service.UDP, Port: 54, ClusterIP: at(clusterIP).Addr()},
	}
	want := picture{ports: []port{
		{
			frontends: ats(clusterIP, "198.51.100.7:53", "198.51.100.8:53", "192.0.2.1:53", ":30053"),
			serving:   ats("10.0.2.9:5353", "10.0.2.10:5353"), // by number, not by text
		},
		{frontends: ats("10.96.0.10:54")},
	}}
	if got := newPicture(service.IPv4, &view); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if got := newPicture(service.IPv6, &view); len(got.ports) != 0 {
		t.Errorf("in the other family: %+v", got)
	}
}

// TestNewerPicture keeps what nobody has looked at, once.
func TestNewerPicture(t *testing.T) {
	first := pictured([]string{clusterIP, external}, []string{endpointA})
	second := pictured([]string{clusterIP, ":30053"}, []string{endpointB})
	third := pictured([]string{clusterIP}, nil)
	got := newer(newer(first, second), third)
	if !reflect.DeepEqual(got.ports, third.ports) {
		t.Errorf("ports are %v", got.ports)
	}
	if want := ats(clusterIP, external, ":30053"); !reflect.DeepEqual(got.overtaken, want) {
		t.Errorf("overtaken are %v, want %v", got.overtaken, want)
	}
	if len(first.overtaken)+len(second.overtaken)+len(third.overtaken) > 0 {
		t.Error("a picture was changed after it was handed over")
	}
}
