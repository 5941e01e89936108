// SPDX-License-Identifier: Apache-2.0

package render

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	iptrender "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/sourcetest"
)

// rivals fills a cache with Services that claim the same external IP and node
// port; the one called old is older, and its name comes last.
func rivals(names ...string) *source.Cache {
	cache := source.NewCache(sourcetest.NewRecorder(), source.Options{})
	for i, name := range names {
		key := service.Key{Namespace: "ns", Name: name}
		spec := &service.Spec{
			Key: key, Created: time.Unix(2000, 0),
			Ports: []service.Port{{Name: "http", Protocol: service.TCP, Port: 80, NodePort: 30080}},
		}
		if name == "old" {
			spec.Created = time.Unix(1000, 0)
		}
		spec.ClusterIPs[service.IPv4] = netip.AddrFrom4([4]byte{172, 30, 0, byte(i + 1)})
		spec.ExternalIPs[service.IPv4] = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
		cache.SetSlice(&service.Slice{
			Service: key, Name: name + "-1", Family: service.IPv4,
			Ports:     []service.SlicePort{{Name: "http", Protocol: service.TCP, Port: 8080}},
			Endpoints: []service.SliceEndpoint{{Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), Ready: true, Serving: true}},
		})
		cache.SetSpec(spec)
	}
	return cache
}

func facts() *service.NodeFacts {
	facts := &service.NodeFacts{Name: "n1"}
	for _, family := range service.Families {
		facts.NodePorts[family].All = true
	}
	return facts
}

// TestObjects_OlderServiceWinsSharedFrontend: the older Service gets a frontend that two Services claim, regardless of
// the order in which they are filed.
func TestObjects_OlderServiceWinsSharedFrontend(t *testing.T) {
	elements := Objects(nftrender.NewRenderer(service.IPv4, nftrender.Options{MasqueradeBit: 14}), nil, Views(rivals("a", "old"), facts()), facts())
	text, err := nftrender.Text(service.IPv4, elements)
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]int{
		`192.0.2.1 . tcp . 80 comment "ns/old:http" : goto`:  1,
		`192.0.2.1 . tcp . 80 comment "ns/a:http"`:           0,
		`tcp . 30080 comment "ns/old:http" : goto`:           1,
		`tcp . 30080 comment "ns/a:http"`:                    0,
		`172.30.0.1 . tcp . 80 comment "ns/a:http" : goto`:   1,
		`172.30.0.2 . tcp . 80 comment "ns/old:http" : goto`: 1,
		`: 10.0.0.1 . 8080`:                                  1, // by its ClusterIP alone
		`: 10.0.0.2 . 8080`:                                  3,
	} {
		if got := strings.Count(text, line); got != want {
			t.Errorf("%q occurs %d times, want %d:\n%s", line, got, want, text)
		}
	}

	chains := Objects(iptrender.NewRenderer(service.IPv4, iptrender.Options{MasqueradeBit: 14}), iptrender.NewLayout(service.IPv4), Views(rivals("a", "old"), facts()), facts())
	if text, err = iptkernel.Text(chains); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]int{
		`-d 192.0.2.1/32 -p tcp -m tcp --dport 80 -m comment --comment "ns/old:http external IP"`: 1,
		`"ns/a:http external IP"`:                                 0,
		`-m tcp --dport 30080 -m comment --comment "ns/old:http"`: 1,
		`-m tcp --dport 30080 -m comment --comment "ns/a:http"`:   0,
		`"ns/a:http cluster IP"`:                                  1,
		`"ns/old:http cluster IP"`:                                1,
	} {
		if got := strings.Count(text, line); got != want {
			t.Errorf("%q occurs %d times, want %d:\n%s", line, got, want, text)
		}
	}
}

// TestObjects_EqualInputsEqualOutput: equal inputs give equal objects, regardless of the order of the inputs and of
// walks over maps.
func TestObjects_EqualInputsEqualOutput(t *testing.T) {
	picture := func() []dataplane.Object {
		return Objects(nftrender.NewRenderer(service.IPv4, nftrender.Options{}), nil, Views(rivals("a", "old", "b", "c"), facts()), facts())
	}
	same := func(a, b dataplane.Object) bool { return dataplane.Same(&a, &b) }
	first := picture()
	for range 10 {
		if again := picture(); !slices.EqualFunc(first, again, same) {
			t.Fatalf("%d objects, then %d that differ", len(first), len(again))
		}
	}
}
