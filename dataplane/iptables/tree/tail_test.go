// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// lead returns a tail rule that leads from one container to another.
func lead(from, to Container) *dataplane.Object {
	return &dataplane.Object{
		ID:   dataplane.ID{Container: from.Name(), Name: TailKey(to.Chain)},
		Kind: dataplane.Element, Body: "-j " + to.Chain, Links: dataplane.LinkTo(to.ID()),
	}
}

// TestTailRules_StandWithTheirRoot: a tail rule exists only while the root that it leads to has rules, also through
// several roots, and it is on the path of their elements.
func TestTailRules_StandWithTheirRoot(t *testing.T) {
	layout, k := New(service.IPv4, []Container{services, nodePorts, hairpin}), kernel{}
	layout.Put(lead(services, nodePorts), service.Node)
	layout.Put(lead(nodePorts, hairpin), service.Node)
	expect := func(step, inServices, inNodePorts string) {
		t.Helper()
		k.apply(layout.Flush())
		if got := k[services.ID()].Body; got != inServices {
			t.Errorf("%s: %s has %q, want %q", step, services.Chain, got, inServices)
		}
		if got := k[nodePorts.ID()].Body; got != inNodePorts {
			t.Errorf("%s: %s has %q, want %q", step, nodePorts.Chain, got, inNodePorts)
		}
		if more := layout.Flush(); len(more) != 0 {
			t.Errorf("%s: a second flush gives %d objects, want none", step, len(more))
		}
	}
	expect("no element", "", "")
	far := rule(hairpin, netip.MustParseAddr("10.0.0.1"), 0, 0, "KUBE-MARK-MASQ")
	layout.Put(far, owner)
	expect("one behind two tail rules", "-j "+nodePorts.Chain, "-j "+hairpin.Chain)
	if path, want := layout.Path(far.ID), []dataplane.ID{services.ID(), nodePorts.ID(), hairpin.ID()}; !slices.Equal(path, want) {
		t.Errorf("path %v, want %v", path, want)
	}
	near := rule(nodePorts, netip.Addr{}, service.TCP, 30080, "KUBE-EXT-A")
	layout.Put(near, owner)
	layout.Remove(far.ID)
	expect("one behind the first", "-j "+nodePorts.Chain, near.Body)
	layout.Remove(near.ID)
	expect("none again", "", "")
	layout.Put(near, owner)
	layout.Remove(lead(services, nodePorts).ID)
	expect("no tail rule", "", near.Body)
}

// TestTailRules_Quick: after any sequence of changes, a tail rule exists if and only if it leads to rules.
func TestTailRules_Quick(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 4))
		layout, k := New(service.IPv4, []Container{hairpin, nodePorts, services}), kernel{}
		var objects []*dataplane.Object
		objects = append(objects, lead(services, nodePorts), lead(nodePorts, hairpin), lead(services, hairpin))
		for i := range 4 {
			objects = append(objects, rule(hairpin, netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 0, 0, "KUBE-MARK-MASQ"),
				rule(nodePorts, netip.Addr{}, service.TCP, uint16(30000+i), "KUBE-EXT-A"))
		}
		there := map[*dataplane.Object]bool{}
		for range 200 {
			o := objects[random.IntN(len(objects))]
			if there[o] = !there[o]; there[o] {
				layout.Put(o, owner)
			} else {
				layout.Remove(o.ID)
			}
			if random.IntN(3) > 0 {
				continue
			}
			k.apply(layout.Flush())
			for _, tail := range objects[:3] {
				from, to := dataplane.ID{Container: "nat", Name: strings.TrimPrefix(tail.ID.Container, "nat/")}, tail.Refs()[0]
				stands := slices.Contains(strings.Split(k[from].Body, "\n"), tail.Body)
				if want := there[tail] && k[to].Body != ""; stands != want {
					t.Fatalf("seed %d: %q stands: %v, want %v", seed, tail.Body, stands, want)
				}
			}
		}
	}
}
