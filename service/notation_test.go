// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// The tests write endpoints as the specification of the API's behaviour does:
//
//	a R {n1}/{za,zb}; n S; b X -/{za}
//
// A letter names the endpoint and its address; "n" runs on this node. The state
// is R (ready), S (serving while terminating), P (ready while terminating, as
// publishNotReadyAddresses has it), U (serving but not ready), T (terminating and not
// serving), or X (none).
// Node hints and zone hints follow, "-" for none.

const thisNode = "n1"

// facts describes this node, in zone za.
func facts() *NodeFacts {
	return &NodeFacts{
		Name: thisNode,
		Zone: "za",
		NodeIPs: PerFamily[netip.Addr]{
			netip.MustParseAddr("192.168.0.2"),
			netip.MustParseAddr("fd00:192:168::2"),
		},
	}
}

func address(family Family, letter byte) netip.Addr {
	prefix := PerFamily[string]{"10.244.0.%d", "fd00:10:244::%x"}[family]
	return netip.MustParseAddr(fmt.Sprintf(prefix, int(letter-'a')+1))
}

// clusterIP is the address of the Service of all tests.
func clusterIP(family Family) netip.Addr {
	return netip.MustParseAddr(PerFamily[string]{"10.96.0.1", "fd00:10:96::1"}[family])
}

// endpoints reads the notation.
func endpoints(t testing.TB, family Family, notation string) []SliceEndpoint {
	t.Helper()
	var list []SliceEndpoint
	for text := range strings.SplitSeq(notation, ";") {
		if strings.TrimSpace(text) == "" {
			continue
		}
		words := strings.Fields(text)
		e := SliceEndpoint{Addr: address(family, words[0][0]), Location: &Location{NodeName: "n2"}}
		if words[0] == "n" {
			e.Location.NodeName = thisNode
		}
		switch words[1] {
		case "R":
			e.Ready, e.Serving = true, true
		case "P":
			e.Ready, e.Serving, e.Terminating = true, true, true
		case "S":
			e.Serving, e.Terminating = true, true
		case "U":
			e.Serving = true
		case "T":
			e.Terminating = true
		case "X":
		default:
			t.Fatalf("unknown state in %q", text)
		}
		if len(words) > 2 {
			nodes, zones, _ := strings.Cut(words[2], "/")
			e.Location.ForNodes, e.Location.ForZones = hints(nodes), hints(zones)
		}
		list = append(list, e)
	}
	return list
}

func hints(text string) []string {
	if text == "-" {
		return nil
	}
	return strings.Split(strings.Trim(text, "{}"), ",")
}

var testKey = Key{Namespace: "ns1", Name: "svc1"}

// newSpec is a Service with one TCP port, reachable by its ClusterIPs only.
func newSpec() *Spec {
	return &Spec{
		Key:        testKey,
		ClusterIPs: PerFamily[netip.Addr]{clusterIP(IPv4), clusterIP(IPv6)},
		Ports:      []Port{{Name: "p80", Protocol: TCP, Port: 80}},
	}
}

// newSlice is a slice that maps port p80 to 8080.
func newSlice(t testing.TB, family Family, name, notation string) *Slice {
	return &Slice{
		Service:   testKey,
		Name:      name,
		Family:    family,
		Ports:     []SlicePort{{Name: "p80", Protocol: TCP, Port: 8080}},
		Endpoints: endpoints(t, family, notation),
	}
}

// letters turns endpoints back into notation: "a b c", in alphabetical order.
func letters(set []Endpoint) string {
	var names []string
	for _, e := range set {
		bytes := e.AddrPort.Addr().AsSlice()
		names = append(names, string('a'+bytes[len(bytes)-1]-1))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// eachFamily runs a test once for each family.
func eachFamily(t *testing.T, test func(t *testing.T, family Family)) {
	for _, family := range Families {
		t.Run(family.String(), func(t *testing.T) { test(t, family) })
	}
}

// resolveOne resolves a Service with one slice and gives the view of its port.
func resolveOne(t *testing.T, family Family, spec *Spec, notation string, f *NodeFacts) (View, *PortView) {
	t.Helper()
	view := Resolve(testKey, spec, []*Slice{newSlice(t, family, "s1", notation)}, f)
	if len(view.Ports[family]) != 1 {
		t.Fatalf("got %d ports, want 1", len(view.Ports[family]))
	}
	return view, &view.Ports[family][0]
}
