// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"slices"
	"testing"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/reduce"
	"github.com/sluice-proxy/sluice/test/sourcetest"
)

// testFeed records what a feed passes on.
func testFeed(lines *[]string) *feed[*corev1.Service, *service.Spec] {
	note := func(verb, name string) { *lines = append(*lines, verb+" "+name) }
	return &feed[*corev1.Service, *service.Spec]{
		kind: "Service", contact: &contact{outage: &outage{}},
		reduce: reduce.Policy{}.Service,
		set:    func(spec *service.Spec) { note("set", spec.Key.String()) },
		remove: func(namespace, name string) { note("remove", namespace+"/"+name) },
		replace: func(all []*service.Spec) {
			for _, spec := range all {
				note("replace", spec.Key.String())
			}
		},
		warn:    func(kind, object string, _ []service.Warning) { note("warn "+kind, object) },
		warnAll: func(kind string, _ map[string][]service.Warning) { note("warn", kind) },
	}
}

// TestFeed_AcceptsBothForms: a feed accepts API objects and reduced objects.
func TestFeed_AcceptsBothForms(t *testing.T) {
	var lines []string
	store := testFeed(&lines)
	object := apiService("a", 80)
	external := apiService("b", 80)
	external.Spec.Type = corev1.ServiceTypeExternalName
	reduced, err := store.Transformer()(object)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []error{
		store.Add(object), store.Update(reduced), store.Add(external), store.Delete(object),
		store.Replace([]any{object, reduced, external}, "1"), store.Resync(), store.Bookmark("2"),
	} {
		if step != nil {
			t.Error(step)
		}
	}
	want := []string{"warn Service ns/a", "set ns/a", "warn Service ns/a", "set ns/a", "warn Service ns/b", "remove ns/b",
		"warn Service ns/a", "remove ns/a", "warn Service", "replace ns/a", "replace ns/a"}
	if !slices.Equal(lines, want) {
		t.Errorf("the feed did %v, want %v", lines, want)
	}
}

// TestFeed_BookmarkIsSignOfLife: a bookmark counts as an answer of the server. A quiet watch delivers nothing else.
func TestFeed_BookmarkIsSignOfLife(t *testing.T) {
	var lines []string
	store := testFeed(&lines)
	if err := store.Bookmark("2"); err != nil || store.contact.status().Heard.IsZero() {
		t.Errorf("after a bookmark: %v, %+v", err, store.contact.status())
	}
}

// TestFeed_RejectsOtherKinds: a feed rejects objects of another kind. A list with such an object must not look like a
// deletion.
func TestFeed_RejectsOtherKinds(t *testing.T) {
	var lines []string
	store := testFeed(&lines)
	pod := &corev1.Pod{}
	known := apiService("a", 80)
	for name, err := range map[string]error{
		"Add": store.Add(pod), "Delete": store.Delete(pod), "Replace": store.Replace([]any{known, pod}, "1"),
	} {
		if err == nil {
			t.Errorf("%s accepted a Pod", name)
		}
	}
	if len(lines) != 0 {
		t.Errorf("the feed did %v, want nothing", lines)
	}
}

// TestStores_EventsFromElsewhere plays the reflectors: a first list, in the form of API objects and in the reduced
// form, then single events.
func TestStores_EventsFromElsewhere(t *testing.T) {
	posts := sourcetest.NewRecorder()
	cache := source.NewCache(posts, source.Options{})
	s, err := NewForREST(Config{NodeName: "n"}, &rest.Config{Host: "192.0.2.1"}, cache, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ofServices, ofSlices := s.Stores()
	reduced, err := ofSlices.Transformer()(apiSlice("a", "a-1", "10.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func() error{
		func() error { return ofServices.Replace([]any{apiService("a", 80)}, "1") },
		func() error { return ofSlices.Replace([]any{reduced}, "1") },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	posts.Expect(t, "spec ns/a", "slice ns/a a-1", "primed ns/a")
	if err := ofSlices.Update(apiSlice("a", "a-1", "10.0.0.2")); err != nil {
		t.Fatal(err)
	}
	if err := ofServices.Delete(apiService("a", 80)); err != nil {
		t.Fatal(err)
	}
	posts.Expect(t, "slice ns/a a-1", "spec ns/a gone")
}

// TestFeed_PrimingWaitsForServiceCIDRs: the cache is primed only after ServiceCIDRs were listed or failed, in addition
// to Services and slices.
func TestFeed_PrimingWaitsForServiceCIDRs(t *testing.T) {
	for name, last := range map[string]func(t *testing.T, s *Source){
		"listed": func(t *testing.T, s *Source) {
			if err := s.serviceCIDRFeed().Replace([]any{apiRange("r", "172.30.0.0/16")}, "1"); err != nil {
				t.Fatal(err)
			}
		},
		"failed": func(_ *testing.T, s *Source) { s.cache.Listed(serviceCIDRs) },
	} {
		t.Run(name, func(t *testing.T) {
			cache := source.NewCache(sourcetest.NewRecorder(), source.Options{})
			s, err := NewForREST(Config{NodeName: "n"}, &rest.Config{Host: "192.0.2.1"}, cache, zap.NewNop())
			if err != nil {
				t.Fatal(err)
			}
			s.awaitLists()
			for _, list := range []string{services, services, endpointSlices, "another", endpointSlices} {
				cache.Listed(list)
			}
			if cache.Stats().Primed {
				t.Fatal("primed without the ranges")
			}
			if last(t, s); !cache.Stats().Primed {
				t.Fatal("not primed with everything known")
			}
		})
	}
}

// TestFeed_KnownListTakesNoMemory: a list that is read again, as after a restart of the API server, shares the values
// that the cache contains, so they are not held twice.
func TestFeed_KnownListTakesNoMemory(t *testing.T) {
	cache := source.NewCache(sourcetest.NewRecorder(), source.Options{})
	s, err := NewForREST(Config{NodeName: "n"}, &rest.Config{Host: "192.0.2.1"}, cache, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ofServices, ofSlices := s.serviceFeed(), s.endpointSliceFeed()
	if err := errors.Join(
		ofServices.Replace([]any{apiService("a", 80)}, "1"), ofSlices.Replace([]any{apiSlice("a", "a-1", "10.0.0.1")}, "1"),
	); err != nil {
		t.Fatal(err)
	}
	known := cache.Snapshot(service.Key{Namespace: "ns", Name: "a"})
	for port, want := range map[int32]bool{80: true, 81: false} {
		item, err := ofServices.Transformer()(apiService("a", port))
		if err != nil || (item.(reduced[*service.Spec]).value == known.Spec) != want {
			t.Errorf("port %d: %+v, %v; the known value: want %v", port, item, err, want)
		}
	}
	for address, want := range map[string]bool{"10.0.0.1": true, "10.0.0.2": false} {
		item, err := ofSlices.Transformer()(apiSlice("a", "a-1", address))
		if err != nil || (item.(reduced[*service.Slice]).value == known.Slices[0]) != want {
			t.Errorf("endpoint %s: %+v, %v; the known value: want %v", address, item, err, want)
		}
	}
}
