// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// rule writes an element as a renderer does.
func rule(c Container, addr netip.Addr, protocol service.Protocol, port uint16, target string) *dataplane.Object {
	o := &dataplane.Object{Kind: dataplane.Element, Links: dataplane.LinkTo(dataplane.ID{Container: c.Table, Name: target})}
	transport := fmt.Sprintf(`-p %s -m comment --comment "ns/svc:p cluster IP" -m %[1]s --dport %d -j %s`, protocol, port, target)
	switch name := ""; c.Shape {
	case ByDestination:
		name = DestinationKey(addr, protocol, port)
		o.ID, o.Body = dataplane.ID{Container: c.Name(), Name: name}, fmt.Sprintf("-d %s/32 %s", addr, transport)
	case ByPort:
		o.ID, o.Body = dataplane.ID{Container: c.Name(), Name: PortKey(protocol, port)}, transport
	default:
		o.ID = dataplane.ID{Container: c.Name(), Name: SourceKey(addr)}
		o.Body = fmt.Sprintf("-s %[1]s/32 -d %[1]s/32 -j %s", addr, target)
	}
	return o
}

// TestRecover_ComposedQuick: Recover reverses Flush, and Path lists the chains to an element: each jumps to the next
// one, and the last one contains the element.
func TestRecover_ComposedQuick(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 3))
		containers := []Container{services, nodePorts, hairpin, refused, refusedPorts}
		layout := New(service.IPv4, containers)
		want := map[dataplane.ID]string{}
		kernel := map[dataplane.ID]*dataplane.Object{}
		for range 1 + random.IntN(600) {
			c := containers[random.IntN(len(containers))]
			addr := netip.AddrFrom4([4]byte{10, 96, byte(random.IntN(8)), byte(random.IntN(256))})
			o := rule(c, addr, protocols[random.IntN(3)], uint16(1+random.IntN(60000)), "KUBE-SVC-ABC")
			layout.Put(o, owner)
			want[o.ID] = o.Body
		}
		layout.Put(&dataplane.Object{ID: dataplane.ID{Container: services.Name(), Name: TailKey("t")}, Body: "-j TAIL"}, service.Node)
		for _, c := range layout.Flush() {
			kernel[c.ID] = c.Object
		}
		stranger := &dataplane.Object{ID: dataplane.ID{Container: "nat", Name: "KUBE-SVC-ABC"}, Body: "-j DNAT"}
		read := []*dataplane.Object{stranger}
		for _, o := range kernel {
			read = append(read, o)
		}
		elements, others := layout.Recover(read)
		if len(others) != 1 || others[0] != stranger {
			t.Fatalf("seed %d: %d chains are said to be others'", seed, len(others))
		}
		got := map[dataplane.ID]string{}
		for _, e := range elements {
			got[e.ID] = e.Body
			if len(e.Refs()) != 1 || e.Refs()[0].Name != stranger.ID.Name {
				t.Fatalf("seed %d: %q refers to %v", seed, e.Body, e.Refs())
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("seed %d: recovered %d elements, want %d", seed, len(got), len(want))
		}
		for id, body := range want {
			path := layout.Path(id)
			for i, at := range path {
				next := body
				if i+1 < len(path) {
					next = "-j " + path[i+1].Name
				}
				if !slices.ContainsFunc(strings.Split(kernel[at].Body, "\n"), func(line string) bool { return strings.HasSuffix(line, next) }) {
					t.Fatalf("seed %d: %v does not lead to %q", seed, at, next)
				}
			}
		}
	}
}

// TestRecover_PortsForLocalAddresses: Recover finds the element of a rule for a port that also matches the type of the
// destination.
func TestRecover_PortsForLocalAddresses(t *testing.T) {
	layout := New(service.IPv4, []Container{nodePorts})
	body := `! -d 127.0.0.0/8 -p tcp -m tcp --dport 30080 -m addrtype --dst-type LOCAL -m comment --comment "a/b" -j DROP`
	elements, _ := layout.Recover([]*dataplane.Object{{ID: nodePorts.ID(), Body: body}})
	if want := PortKey(service.TCP, 30080); len(elements) != 1 || elements[0].ID.Name != want || elements[0].Body != body {
		t.Errorf("got %+v", elements)
	}
}

// TestRecover_SkipsNonElements: Recover skips rules that are no elements of a tree, and ignores the text of quoted
// comments.
func TestRecover_SkipsNonElements(t *testing.T) {
	layout := New(service.IPv4, []Container{services})
	root := &dataplane.Object{ID: services.ID(), Body: strings.Join([]string{
		"-m addrtype --dst-type LOCAL -j KUBE-NODEPORTS",
		"-d 10.0.0.0/24 -j KUBE-SVC-TS-0A000000-24",
		"-d 10.0.0.0/24 -p tcp -m tcp --dport 80 -j KUBE-SVC-A",
		"-d 10.0.0.1/32 -p tcp -m tcp --dport 80:90 -j KUBE-SVC-A",
		"! -s 10.0.0.1/32 -d 10.0.0.1/32 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ",
		`-d 10.0.0.1/32 -p tcp -m comment --comment "a -d 1.2.3.4/32 -p udp" -m tcp --dport 80 -j REJECT --reject-with icmp`,
	}, "\n")}
	elements, _ := layout.Recover([]*dataplane.Object{root})
	want := DestinationKey(netip.MustParseAddr("10.0.0.1"), service.TCP, 80)
	if len(elements) != 1 || elements[0].ID.Name != want || elements[0].Refs() != nil {
		t.Errorf("got %+v", elements)
	}
}
