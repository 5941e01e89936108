// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	iptrender "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	ipvsrender "github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

var modes = []string{NFTables, IPTables, IPVS}

// The world of the tests: node n1 with the addresses 192.168.0.2 and 192.168.1.2, pods of the
// cluster in 10.244.0.0/16, those of the node in 10.244.1.0/24.
func newState(mode string, services ...*serviceMade) *State {
	cache := source.NewCache(discard{}, source.Options{})
	for _, s := range services {
		cache.SetSpec(&s.spec)
		cache.SetSlice(&s.slice)
	}
	node, second := netip.MustParseAddr("192.168.0.2"), netip.MustParseAddr("192.168.1.2")
	return &State{
		Mode: mode, Services: cache,
		Node:      &service.NodeObject{Name: "n1", PodCIDRs: service.PerFamily[netip.Prefix]{netip.MustParsePrefix("10.244.1.0/24")}},
		Addresses: []netip.Addr{node, second},
		Facts: &service.NodeFacts{
			Name: "n1", Zone: "za", NodeIPs: service.PerFamily[netip.Addr]{node},
			Detect: service.PerFamily[service.LocalDetector]{{CIDR: netip.MustParsePrefix("10.244.0.0/16")}},
			NodePorts: service.PerFamily[service.NodePortAddresses]{
				{Addresses: []netip.Addr{node}, Host: []netip.Addr{node, second}}, {Addresses: []netip.Addr{netip.MustParseAddr("fd00:192::2")}},
			},
			ServiceCIDRs: service.PerFamily[[]netip.Prefix]{{netip.MustParsePrefix("172.30.0.0/16")}},
		},
		Domain: func(family service.Family) (dataplane.Renderer, dataplane.Layout) {
			switch mode {
			case IPVS:
				return ipvsrender.NewRenderer(family, ipvsrender.Options{MasqueradeBit: 14}), nil
			case IPTables:
				return iptrender.NewRenderer(family, iptrender.Options{MasqueradeBit: 14, Accounting: true}), iptrender.NewLayout(family)
			}
			return nftrender.NewRenderer(family, nftrender.Options{MasqueradeBit: 14}), nil
		},
	}
}

// serviceMade is a Service ns/NAME with one port, 80/tcp, named http, at ClusterIP
// 172.30.0.41.
type serviceMade struct {
	spec  service.Spec
	slice service.Slice
}

// made returns a Service with endpoints on this node at 10.244.1.x and elsewhere at 10.244.2.x.
func made(name string, endpoints ...string) *serviceMade {
	key := service.Key{Namespace: "ns", Name: name}
	s := &serviceMade{
		spec: service.Spec{
			Key: key, Created: time.Unix(1000, 0),
			ClusterIPs: service.PerFamily[netip.Addr]{netip.MustParseAddr("172.30.0.41")},
			Ports:      []service.Port{{Name: "http", Protocol: service.TCP, Port: 80}},
		},
		slice: service.Slice{
			Service: key, Name: name + "-1", Ports: []service.SlicePort{{Name: "http", Protocol: service.TCP, Port: 8080}},
		},
	}
	for _, text := range endpoints {
		addr, unready := strings.CutSuffix(text, " unready")
		e := service.SliceEndpoint{Addr: netip.MustParseAddr(addr), Location: &service.Location{NodeName: "n2"}, Ready: !unready, Serving: !unready}
		if strings.HasPrefix(text, "10.244.1.") {
			e.Location = &service.Location{NodeName: "n1"}
		}
		s.slice.Endpoints = append(s.slice.Endpoints, e)
	}
	return s
}

// external gives a Service a node port, an external IP and a load balancer's address.
func (s *serviceMade) external(local bool) *serviceMade {
	s.spec.Ports[0].NodePort = 30080
	s.spec.ExternalIPs[service.IPv4] = []netip.Addr{netip.MustParseAddr("192.0.2.99")}
	s.spec.LoadBalancerVIPs[service.IPv4] = []netip.Addr{netip.MustParseAddr("192.0.2.41")}
	s.spec.ExternalLocal = local
	return s
}

// explained answers a question such as "10.244.1.5 -> 172.30.0.41:80".
func explained(t *testing.T, s *State, question string) *Answer {
	t.Helper()
	from, to, _ := strings.Cut(question, " -> ")
	a, err := Explain(s, Flow{From: netip.AddrPortFrom(netip.MustParseAddr(from), 0), To: netip.MustParseAddrPort(to)})
	if err != nil {
		t.Fatalf("%s, %s: %v", s.Mode, question, err)
	}
	return a
}

// summary is an answer in one line: the verdict, the source, and the endpoints in the order of
// their addresses.
func (a *Answer) summary() string {
	var to []string
	for _, o := range a.Outcomes {
		if o.Verdict == Delivered {
			to = append(to, fmt.Sprintf("%s %.2f", o.To, o.Probability))
		}
	}
	slices.Sort(to)
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", a.Verdict, a.Source, strings.Join(to, ", ")))
}

type discard struct{}

func (discard) PostSpec(service.Key, *service.Spec)           {}
func (discard) PostSlice(service.Key, string, *service.Slice) {}
func (discard) PostNode(*service.NodeObject)                  {}
func (discard) PostServiceCIDRs([]netip.Prefix)               {}
func (discard) Primed()                                       {}
