// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

var owner = service.Key{Namespace: "ns", Name: "svc"}

// sequential returns the key of the nth Service of a cluster.
func sequential(n int) string {
	addr := binary.BigEndian.AppendUint32(nil, 0xAC1E0000+uint32(n))
	return DestinationKey(netip.AddrFrom4([4]byte(addr)), service.TCP, 80)
}

func filled(n int, key func(int) string) *Layout {
	layout := New(service.IPv4, []Container{services})
	for i := range n {
		layout.Put(makeItem(services, key(i)).object, owner)
	}
	return layout
}

// TestLayout_FirstFlushComposesEveryRoot: the first flush composes every root, even an empty one.
func TestLayout_FirstFlushComposesEveryRoot(t *testing.T) {
	got := New(service.IPv4, []Container{services, nodePorts, hairpin}).Flush()
	want := []dataplane.ID{services.ID(), nodePorts.ID(), hairpin.ID()}
	for i, c := range got {
		if c.ID != want[i] || c.Object == nil || c.Object.Body != "" || c.Object.ID != c.ID {
			t.Errorf("%d: got %v %+v, want empty %v", i, c.ID, c.Object, want[i])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d chains, want %d", len(got), len(want))
	}
}

// TestLayout_RootHoldsFewElements: a few elements are in the root itself, before the tail rules.
func TestLayout_RootHoldsFewElements(t *testing.T) {
	layout := New(service.IPv4, []Container{services})
	put := func(name, body string, key service.Key, refs ...dataplane.ID) {
		id := dataplane.ID{Container: services.Name(), Name: name}
		layout.Put(&dataplane.Object{ID: id, Kind: dataplane.Element, Body: body, Links: dataplane.LinkTo(refs...)}, key)
	}
	a, b := dataplane.ID{Container: "nat", Name: "A"}, dataplane.ID{Container: "nat", Name: "B"}
	put(TailKey("2"), "-j T2", service.Node, b)
	put(TailKey("1"), "-j T1", service.Node, a)
	put(sequential(2), "-j E2", owner, a)
	put(sequential(1), "-j E1", owner, b, a)
	object := layout.Flush()[0].Object
	if want := "-j E1\n-j E2\n-j T1\n-j T2"; object.Body != want {
		t.Errorf("body %q, want %q", object.Body, want)
	}
	node := dataplane.Part{Owner: service.Node}
	if want := []dataplane.Part{{Owner: owner}, {Owner: owner}, node, node}; !slices.Equal(object.Parts(), want) {
		t.Errorf("parts %v, want %v", object.Parts(), want)
	}
	if want := []dataplane.ID{b, a}; !slices.Equal(object.Refs(), want) {
		t.Errorf("refs %v, want %v", object.Refs(), want)
	}
	layout.Remove(dataplane.ID{Container: services.Name(), Name: TailKey("1")})
	layout.Remove(dataplane.ID{Container: services.Name(), Name: TailKey("none")})
	layout.Remove(dataplane.ID{Container: "nat/OTHER", Name: TailKey("none")})
	if got, want := layout.Flush()[0].Object.Body, "-j E1\n-j E2\n-j T2"; got != want {
		t.Errorf("body %q, want %q", got, want)
	}
}

// TestLayout_SplitAndMerge: a root with one element too many splits into two chains, and a removal merges them again.
func TestLayout_SplitAndMerge(t *testing.T) {
	layout, k := filled(LeafMax, sequential), kernel{}
	k.apply(layout.Flush())
	if len(k) != 1 {
		t.Fatalf("%d elements make %d chains, want the root alone", LeafMax, len(k))
	}
	layout.Put(makeItem(services, sequential(LeafMax)).object, owner)
	k.apply(layout.Flush())
	want := "-d 172.30.0.0/27 -j KUBE-SVC-TS-AC1E0000-27\n-d 172.30.0.32/27 -j KUBE-SVC-TS-AC1E0020-27"
	if got := k[services.ID()].Body; got != want || len(k) != 3 {
		t.Errorf("one more makes %d chains and a root of %q, want 3 and %q", len(k), got, want)
	}
	layout.Remove(dataplane.ID{Container: services.Name(), Name: sequential(7)})
	k.apply(layout.Flush())
	if len(k) != 1 || len(lines(k[services.ID()])) != LeafMax {
		t.Errorf("one less makes %d chains, want the root alone with %d rules", len(k), LeafMax)
	}
}

// TestLayout_FlushCostDoesNotGrow: the cost of a change is that of the path to its element, and does not grow with the
// number of elements.
func TestLayout_FlushCostDoesNotGrow(t *testing.T) {
	for _, size := range []int{100, 10_000} {
		layout := filled(size, sequential)
		layout.Flush()
		tree := layout.order[0]
		for round := range 200 {
			n := (round * 7919) % size
			changed := makeItem(services, sequential(n)).object
			changed.Body += fmt.Sprint(round)
			tree.visited = 0
			layout.Put(changed, owner)
			out := layout.Flush()
			if len(out) != 1 {
				t.Fatalf("N=%d: one rule replaced changes %d chains, want 1", size, len(out))
			}
			if limit := 2*LeafMax + 3*2*fanout; tree.visited > limit {
				t.Fatalf("N=%d: one rule replaced looks at %d nodes, want at most %d", size, tree.visited, limit)
			}
		}
		// Removing and adding an element splits and merges a few chains at most.
		for round := range 200 {
			n := (round * 7919) % size
			tree.visited = 0
			layout.Remove(dataplane.ID{Container: services.Name(), Name: sequential(n)})
			out := layout.Flush()
			layout.Put(makeItem(services, sequential(n)).object, owner)
			out = append(out, layout.Flush()...)
			if len(out) > 2*3*fanout || tree.visited > 1000 {
				t.Fatalf("N=%d: out and in again changes %d chains and looks at %d nodes", size, len(out), tree.visited)
			}
		}
	}
}

// TestLayout_RulesPassedHardlyGrow: a packet for the last of 10,000 Services passes few more rules than one for the
// last of 100.
func TestLayout_RulesPassedHardlyGrow(t *testing.T) {
	passed := map[int]int{}
	for _, size := range []int{100, 10_000} {
		layout, k := filled(size, sequential), kernel{}
		k.apply(layout.Flush())
		for i := 0; i < size; i += 1 + size/1000 {
			var w walk
			k.send(t, &w, makeItem(services, sequential(i)).packet, services.ID(), 1)
			passed[size] = max(passed[size], w.rules)
		}
	}
	if passed[100] > 40 || passed[10_000] > 80 {
		t.Errorf("the worst packet passes %d rules of 100 Services and %d of 10,000", passed[100], passed[10_000])
	}
}

// TestLayout_GuardTurnsOthersAway: a packet for no element of a guarded container passes one rule, for any number of
// elements.
func TestLayout_GuardTurnsOthersAway(t *testing.T) {
	for _, size := range []int{1, guardMin, LeafMax, 10_000} {
		layout, k := New(service.IPv4, []Container{refused}), kernel{}
		for i := range size {
			layout.Put(makeItem(refused, sequential(i)).object, owner)
		}
		k.apply(layout.Flush())
		var w walk
		k.send(t, &w, packet{destination: netip.MustParseAddr("10.244.1.5"), protocol: "udp", port: 8125}, refused.ID(), 1)
		if w.rules != 1 || len(w.hits) > 0 {
			t.Errorf("%d elements: a packet for none of them passes %d rules and meets %q, want 1 and none", size, w.rules, w.hits)
		}
		last := makeItem(refused, sequential(size-1))
		w = walk{}
		if k.send(t, &w, last.packet, refused.ID(), 1); !slices.Equal(w.hits, []string{last.target}) {
			t.Errorf("%d elements: a packet for the last one meets %q", size, w.hits)
		}
	}
}

// chainsDeepMax is the depth that the nft variant leaves for a tree: 15 jumps from a built-in chain
// (NFT_JUMP_STACK_SIZE, Linux 6.18), without the at most five chains around a tree: KUBE-SERVICES,
// KUBE-FW-, KUBE-EXT-, KUBE-SVC- and KUBE-SEP-.
const chainsDeepMax = 10

// TestLayout_DepthIsBounded: the number of elements limits the depth, with any keys.
func TestLayout_DepthIsBounded(t *testing.T) {
	for _, test := range []struct {
		name string
		size int
		key  func(int) string
	}{
		{"sequential", 10_000, sequential},
		{"one address, many ports", 1 << 14, func(n int) string {
			return DestinationKey(netip.MustParseAddr("172.30.0.1"), service.TCP, uint16(n))
		}},
		{"one more element at every bit", 10_000, lonelyAtEveryBit},
	} {
		t.Run(test.name, func(t *testing.T) {
			layout, k := filled(test.size, test.key), kernel{}
			k.apply(layout.Flush())
			rank := math.Log(float64(test.size)/LeafMax) / math.Log(fanout)
			want := 1 + int(math.Ceil(rank))
			deepest := 0
			for i := 0; i < test.size; i += 1 + test.size/500 {
				var w walk
				one := makeItem(services, test.key(i))
				k.send(t, &w, one.packet, services.ID(), 1)
				if !slices.Equal(w.hits, []string{one.target}) {
					t.Fatalf("%+v meets %q, want %s", one.packet, w.hits, one.target)
				}
				deepest = max(deepest, w.depth)
			}
			if deepest > want || deepest > chainsDeepMax {
				t.Errorf("%d elements are %d chains deep, want at most %d", test.size, deepest, want)
			}
		})
	}
}

// lonelyAtEveryBit returns keys of which 40 separate from the rest at each of the first 32 bits,
// and all others share their address.
func lonelyAtEveryBit(n int) string {
	const crowd = 40
	if bit := n / crowd; bit < 32 {
		addr := binary.BigEndian.AppendUint32(nil, uint32(1)<<(31-bit))
		return DestinationKey(netip.AddrFrom4([4]byte(addr)), service.TCP, uint16(n%crowd))
	}
	return DestinationKey(netip.IPv4Unspecified(), service.UDP, uint16(n))
}

// TestLayout_SingleElementReplaced: a chain whose single element is replaced between two flushes is composed again,
// although its name and its place remain.
func TestLayout_SingleElementReplaced(t *testing.T) {
	layout, k := filled(2*LeafMax, sequential), kernel{}
	lonely := func(addr string) item {
		return makeItem(services, DestinationKey(netip.MustParseAddr(addr), service.TCP, 80))
	}
	first, second := lonely("10.0.0.1"), lonely("10.0.0.2")
	layout.Put(first.object, owner)
	k.apply(layout.Flush())
	layout.Remove(first.object.ID)
	layout.Put(second.object, owner)
	k.apply(layout.Flush())
	chain := dataplane.ID{Container: "nat", Name: "KUBE-SVC-TS-00000000-1"}
	if got := k[chain]; got == nil || got.Body != second.object.Body {
		t.Errorf("%s holds %+v, want %q", chain.Name, got, second.object.Body)
	}
}

// TestLayout_OwnerFollowsClaim: when an equal claim passes from one Service to another, the parts change although the
// text does not, because they name the suspects.
func TestLayout_OwnerFollowsClaim(t *testing.T) {
	layout := filled(1, sequential)
	layout.Flush()
	other := service.Key{Namespace: "ns", Name: "other"}
	layout.Put(makeItem(services, sequential(0)).object, other)
	out := layout.Flush()
	if len(out) != 1 || out[0].Object.Parts()[0].Owner != other {
		t.Errorf("got %+v, want the root with its line owned by %s", out, other)
	}
}

// TestLayout_MisusePanics: Put panics for unknown containers and unsuitable keys, and New for containers with the same
// name.
func TestLayout_MisusePanics(t *testing.T) {
	layout := New(service.IPv4, []Container{services})
	for _, id := range []dataplane.ID{
		{Container: "nat/OTHER", Name: sequential(1)},
		{Container: services.Name(), Name: ""},
		{Container: services.Name(), Name: PortKey(service.TCP, 80)},
	} {
		mustPanic(t, func() { layout.Put(&dataplane.Object{ID: id}, owner) })
	}
	twin := services
	twin.Chain = "TWIN"
	mustPanic(t, func() { New(service.IPv4, []Container{services, twin}) })
}

func mustPanic(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	f()
}

// BenchmarkReplaceOne measures a change of one Service's dispatch rule.
func BenchmarkReplaceOne(b *testing.B) {
	for _, size := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			layout := filled(size, sequential)
			layout.Flush()
			object := makeItem(services, sequential(size/2)).object
			other := *object
			other.Body += "2"
			versions := [2]*dataplane.Object{object, &other}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				layout.Put(versions[i%2], owner)
				layout.Flush()
			}
		})
	}
}

// BenchmarkCompose measures a cold start with 10,000 elements.
func BenchmarkCompose(b *testing.B) {
	objects := make([]*dataplane.Object, 10_000)
	for i := range objects {
		objects[i] = makeItem(services, sequential(i)).object
	}
	b.ReportAllocs()
	for b.Loop() {
		layout := New(0, []Container{services})
		for _, object := range objects {
			layout.Put(object, owner)
		}
		layout.Flush()
	}
}
