// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/sourcetest"
)

func key(name string) service.Key { return service.Key{Namespace: "ns", Name: name} }

func spec(name string, port uint16) *service.Spec {
	return &service.Spec{Key: key(name), Ports: []service.Port{{Port: port}}}
}

func slice(owner, name string, addresses ...string) *service.Slice {
	made := &service.Slice{Service: key(owner), Name: name, Ports: []service.SlicePort{{Port: 80}}}
	for _, address := range addresses {
		made.Endpoints = append(made.Endpoints, service.SliceEndpoint{Addr: netip.MustParseAddr(address), Ready: true})
	}
	return made
}

func newCache() (*source.Cache, *sourcetest.Recorder) {
	recorder := sourcetest.NewRecorder()
	return source.NewCache(recorder, source.Options{}), recorder
}

// TestCache_PostsOnlyDifferences: the cache posts only changed specs and slices, and each removal once.
func TestCache_PostsOnlyDifferences(t *testing.T) {
	cache, posts := newCache()
	cache.SetSpec(spec("a", 80))
	cache.SetSlice(slice("a", "x", "10.0.0.1"))
	posts.Expect(t, "spec ns/a", "slice ns/a x")

	cache.SetSpec(spec("a", 80))
	cache.SetSlice(slice("a", "x", "10.0.0.1"))
	posts.Expect(t)

	cache.SetSpec(spec("a", 81))
	cache.SetSlice(slice("a", "x", "10.0.0.2"))
	posts.Expect(t, "spec ns/a", "slice ns/a x")

	cache.RemoveSlice("ns", "x")
	cache.RemoveSlice("ns", "x")
	cache.RemoveSpec(key("a"))
	cache.RemoveSpec(key("a"))
	posts.Expect(t, "slice ns/a x gone", "spec ns/a gone")
}

// TestCache_IgnoresTriggerOfEqualSlice: a slice that differs only in its trigger is not posted.
func TestCache_IgnoresTriggerOfEqualSlice(t *testing.T) {
	cache, posts := newCache()
	cache.SetSpec(spec("a", 80))
	cache.SetSlice(slice("a", "x", "10.0.0.1"))
	posts.Take()

	same := slice("a", "x", "10.0.0.1")
	same.Trigger = time.Unix(100, 0)
	cache.SetSlice(same)
	posts.Expect(t)

	other := slice("a", "x", "10.0.0.2")
	other.Trigger = time.Unix(200, 0)
	cache.SetSlice(other)
	posts.Expect(t, "slice ns/a x")
	if got := cache.Snapshot(key("a")).Slices[0].Trigger; !got.Equal(other.Trigger) {
		t.Errorf("trigger is %s, want %s", got, other.Trigger)
	}
}

// TestCache_MovesSlices: a slice that moves to another Service is posted as removed from the old one and added to the
// new one.
func TestCache_MovesSlices(t *testing.T) {
	cache, posts := newCache()
	cache.SetSpec(spec("a", 80))
	cache.SetSpec(spec("b", 80))
	cache.SetSlice(slice("a", "x", "10.0.0.1"))
	posts.Take()

	cache.SetSlice(slice("b", "x", "10.0.0.1"))
	posts.Expect(t, "slice ns/a x gone", "slice ns/b x")
	if left := cache.Snapshot(key("a")).Slices; len(left) != 0 {
		t.Errorf("old owner still has %d slices", len(left))
	}

	cache.RemoveSlice("ns", "x")
	posts.Expect(t, "slice ns/b x gone")
}

// TestCache_KeepsSlicesOfUnknownServices: the cache keeps slices of an unknown Service without posting them, and its
// snapshot contains them once the Service is known.
func TestCache_KeepsSlicesOfUnknownServices(t *testing.T) {
	cache, posts := newCache()
	cache.SetSlice(slice("a", "y", "10.0.0.2"))
	cache.SetSlice(slice("a", "x", "10.0.0.1"))
	cache.SetSlice(slice("a", "gone", "10.0.0.3"))
	cache.RemoveSlice("ns", "gone")
	posts.Expect(t)

	cache.SetSpec(spec("a", 80))
	posts.Expect(t, "spec ns/a")
	var names []string
	for _, slice := range cache.Snapshot(key("a")).Slices {
		names = append(names, slice.Name)
	}
	if want := []string{"x", "y"}; !slices.Equal(names, want) {
		t.Errorf("snapshot has slices %v, want %v", names, want)
	}

	cache.RemoveSpec(key("a"))
	posts.Take()
	cache.SetSlice(slice("a", "x", "10.0.0.9"))
	posts.Expect(t)
}

// TestCache_PrimesOnce: the cache posts one prime event with the keys of all Services, even if it is primed twice.
func TestCache_PrimesOnce(t *testing.T) {
	cache, posts := newCache()
	cache.SetSpec(spec("b", 80))
	cache.SetSpec(spec("a", 80))
	cache.SetSlice(slice("orphan", "x"))
	posts.Take()
	cache.Prime()
	cache.Prime()
	posts.Expect(t, "primed ns/a ns/b")
	if !cache.Stats().Primed {
		t.Error("stats do not say that the cache is primed")
	}
}

func TestCache_Node(t *testing.T) {
	cache, posts := newCache()
	node := func(address string) *service.NodeObject {
		return &service.NodeObject{Name: "n", Addresses: []netip.Addr{netip.MustParseAddr(address)}}
	}
	cache.SetNode(node("192.0.2.1"))
	cache.SetNode(node("192.0.2.1"))
	posts.Expect(t, "node n")
	cache.SetNode(node("192.0.2.2"))
	posts.Expect(t, "node n")
	if got := cache.Node().Addresses[0].String(); got != "192.0.2.2" {
		t.Errorf("node has address %s, want the newer 192.0.2.2", got)
	}
}

// TestCache_SnapshotOfUnknownService: the snapshot of an unknown Service is empty.
func TestCache_SnapshotOfUnknownService(t *testing.T) {
	cache, _ := newCache()
	if got := cache.Snapshot(key("a")); got.Spec != nil || got.Slices != nil {
		t.Errorf("snapshot of an unknown Service is %+v, want nothing", got)
	}
}

// askingSink reads the cache from within a post, which deadlocks if the cache
// holds its lock while it posts.
type askingSink struct {
	*sourcetest.Recorder
	cache *source.Cache
}

func (s *askingSink) PostSpec(key service.Key, spec *service.Spec) {
	if got := s.cache.Snapshot(key).Spec; (got == nil) != (spec == nil) {
		panic(fmt.Sprintf("snapshot within the post of %s is older than the post", key))
	}
	s.Recorder.PostSpec(key, spec)
}

// TestCache_DoesNotLockWhilePosting: the cache holds no lock while it posts, so a receiver can query it.
func TestCache_DoesNotLockWhilePosting(t *testing.T) {
	sink := &askingSink{Recorder: sourcetest.NewRecorder()}
	sink.cache = source.NewCache(sink, source.Options{})
	sink.cache.SetSpec(spec("a", 80))
	sink.cache.RemoveSpec(key("a"))
	sink.cache.ReplaceSpecs([]*service.Spec{spec("b", 80)})
	sink.Expect(t, "spec ns/a", "spec ns/a gone", "spec ns/b")
}

// TestCache_Concurrent sets Services and slices from two goroutines, as the API source does, while a third one reads;
// the race detector checks the accesses.
func TestCache_Concurrent(t *testing.T) {
	cache, _ := newCache()
	const count = 200
	var running sync.WaitGroup
	running.Go(func() {
		for i := range count {
			cache.SetSpec(spec(fmt.Sprint(i%10), uint16(i)))
		}
	})
	running.Go(func() {
		for i := range count {
			cache.SetSlice(slice(fmt.Sprint(i%10), fmt.Sprint("s", i%20), fmt.Sprintf("10.0.0.%d", i)))
		}
	})
	running.Go(func() {
		for i := range count {
			cache.Snapshot(key(fmt.Sprint(i % 10)))
			cache.Stats()
		}
	})
	running.Wait()
	if got := cache.Stats(); got.Specs != 10 || got.Slices != 20 {
		t.Errorf("%d specs and %d slices are left, want 10 and 20", got.Specs, got.Slices)
	}
}

// TestCache_EventsCountUpdates: Events counts every update, and slice changes separately.
func TestCache_EventsCountUpdates(t *testing.T) {
	cache, _ := newCache()
	six := slice("a", "six", "fd00::1")
	six.Family = service.IPv6

	cache.SetSpec(spec("a", 80))
	cache.SetSpec(spec("a", 80)) // no difference, and told all the same
	cache.SetSlice(slice("a", "four", "10.0.0.1"))
	cache.SetSlice(slice("a", "four", "10.0.0.1"))
	cache.SetSlice(six)
	cache.SetSlice(slice("b", "four", "10.0.0.1")) // gone from a, and new in b
	cache.RemoveSlice("ns", "six")
	cache.RemoveSlice("ns", "never seen")
	cache.RemoveSpec(key("a"))

	want := source.Events{Specs: 3, Slices: service.PerFamily[uint64]{4, 2}, SliceChanges: 5}
	if got := cache.Events(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestCache_EventsCountLists: Events counts each listed object and each removal by a list.
func TestCache_EventsCountLists(t *testing.T) {
	cache, _ := newCache()
	cache.ReplaceSpecs([]*service.Spec{spec("a", 80), spec("b", 80)})
	cache.ReplaceSlices([]*service.Slice{slice("a", "x", "10.0.0.1")})
	cache.ReplaceSpecs([]*service.Spec{spec("a", 80)})
	cache.ReplaceSlices(nil)

	want := source.Events{Specs: 4, Slices: service.PerFamily[uint64]{2, 0}, SliceChanges: 2}
	if got := cache.Events(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestCache_ReplaceSpecsPostsDifferences: ReplaceSpecs posts only added, changed and removed Services.
func TestCache_ReplaceSpecsPostsDifferences(t *testing.T) {
	cache, posts := newCache()
	cache.ReplaceSpecs([]*service.Spec{spec("a", 80), spec("b", 80)})
	posts.Expect(t, "spec ns/a", "spec ns/b")

	cache.ReplaceSpecs([]*service.Spec{spec("b", 80), spec("a", 80)})
	posts.Expect(t)

	cache.ReplaceSpecs([]*service.Spec{spec("b", 81), spec("c", 80)})
	posts.Expect(t, "spec ns/b", "spec ns/c", "spec ns/a gone")
}

// TestCache_ReplaceSlicesPostsDifferences: ReplaceSlices posts only added, moved and removed slices.
func TestCache_ReplaceSlicesPostsDifferences(t *testing.T) {
	cache, posts := newCache()
	cache.SetSpec(spec("a", 80))
	cache.SetSpec(spec("b", 80))
	cache.ReplaceSlices([]*service.Slice{slice("a", "x", "10.0.0.1"), slice("a", "y", "10.0.0.2")})
	posts.Take()

	cache.ReplaceSlices([]*service.Slice{slice("a", "y", "10.0.0.2"), slice("a", "x", "10.0.0.1")})
	posts.Expect(t)

	cache.ReplaceSlices([]*service.Slice{slice("b", "x", "10.0.0.1"), slice("unknown", "z", "10.0.0.3")})
	posts.Expect(t, "slice ns/a x gone", "slice ns/b x", "slice ns/a y gone")
}

// TestCache_IgnoreExternalIPs: with IgnoreExternalIPs, the cache drops external IPs from its copy of a spec and posts
// no change of them.
func TestCache_IgnoreExternalIPs(t *testing.T) {
	withIP := func(text string) *service.Spec {
		s := spec("a", 80)
		s.ExternalIPs[service.IPv4] = []netip.Addr{netip.MustParseAddr(text)}
		return s
	}
	posts := sourcetest.NewRecorder()
	cache := source.NewCache(posts, source.Options{IgnoreExternalIPs: true})
	given := withIP("192.0.2.99")
	cache.SetSpec(given)
	posts.Expect(t, "spec ns/a")
	if got := cache.Snapshot(key("a")).Spec; len(got.ExternalIPs[service.IPv4]) != 0 || len(got.Ports) != 1 {
		t.Errorf("got %+v, want everything but the External IP", got)
	}
	if len(given.ExternalIPs[service.IPv4]) != 1 {
		t.Error("the spec that was handed over has been changed")
	}
	cache.SetSpec(withIP("192.0.2.98"))
	cache.ReplaceSpecs([]*service.Spec{withIP("192.0.2.97")})
	posts.Expect(t)

	cache = source.NewCache(posts, source.Options{})
	cache.ReplaceSpecs([]*service.Spec{given})
	if got := cache.Snapshot(key("a")).Spec; len(got.ExternalIPs[service.IPv4]) != 1 {
		t.Errorf("got %+v, want the External IP as well", got)
	}
}

// TestCache_RemoveNode: the last state of a deleted Node stays, and its deletion is posted once; the next Node replaces
// it.
func TestCache_RemoveNode(t *testing.T) {
	cache, posts := newCache()
	if cache.RemoveNode() {
		t.Error("there is a Node before the first")
	}
	cache.SetNode(&service.NodeObject{Name: "n", Zone: "z"})
	for range 2 {
		if !cache.RemoveNode() {
			t.Error("there is no Node")
		}
		if node := cache.Node(); !node.Deleted || node.Zone != "z" {
			t.Errorf("the deleted Node is %+v", node)
		}
	}
	posts.Expect(t, "node n", "node n")
	cache.SetNode(&service.NodeObject{Name: "n", Zone: "z"})
	if cache.Node().Deleted {
		t.Error("a Node that was registered again is deleted")
	}
}
