package kube

import (
	"errors"
	"slices"
	"testing"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/reduce"
	"github.com/sluice-proxy/sluice/source/sourcetest"
)

// testStore writes down what a store hands on.
func testStore(lines *[]string) *store[reducedService] {
	note := func(verb string) func(reducedService) {
		return func(item reducedService) { *lines = append(*lines, verb+" "+item.key.String()) }
	}
	return &store[reducedService]{
		reduce: reduceAs(func(o *corev1.Service) reducedService { return reduceService(reduce.Policy{}, o) }),
		set:    note("set"), remove: note("remove"),
		replace: func(items []reducedService) {
			for _, item := range items {
				note("replace")(item)
			}
		},
		heard: func() { *lines = append(*lines, "heard") },
	}
}

func TestStoreAcceptsBothForms(t *testing.T) {
	var lines []string
	store := testStore(&lines)
	object := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	reduced, err := store.Transformer()(object)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []error{
		store.Add(object), store.Update(reduced), store.Delete(object),
		store.Replace([]any{object, reduced}, "1"), store.Resync(), store.Bookmark("2"),
	} {
		if step != nil {
			t.Error(step)
		}
	}
	want := []string{"heard", "set ns/a", "heard", "set ns/a", "heard", "remove ns/a",
		"heard", "replace ns/a", "replace ns/a", "heard"}
	if !slices.Equal(lines, want) {
		t.Errorf("store did %v, want %v", lines, want)
	}
}

// TestStoreRefusesStrangers: a list with an object that cannot be understood
// must not look like the deletion of that object.
func TestStoreRefusesStrangers(t *testing.T) {
	var lines []string
	store := testStore(&lines)
	stranger := &corev1.Pod{}
	known := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	for name, err := range map[string]error{
		"Add": store.Add(stranger), "Delete": store.Delete(stranger), "Replace": store.Replace([]any{known, stranger}, "1"),
	} {
		if err == nil {
			t.Errorf("%s accepted a Pod", name)
		}
	}
	if want := []string{"heard", "heard", "heard"}; !slices.Equal(lines, want) {
		t.Errorf("store did %v, want %v", lines, want)
	}
}

// TestStoresTakeEventsFromElsewhere plays the reflectors: a first list, in the
// form of API objects and in the reduced one, then single events.
func TestStoresTakeEventsFromElsewhere(t *testing.T) {
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

// TestTheFirstPictureHasTheRanges: Services and slices alone do not prime the
// cache; the list of ServiceCIDRs does, or the failure to get it.
func TestTheFirstPictureHasTheRanges(t *testing.T) {
	for name, last := range map[string]func(t *testing.T, s *Source){
		"listed": func(t *testing.T, s *Source) {
			if err := s.serviceCIDRStore().Replace([]any{apiRange("r", "172.30.0.0/16")}, "1"); err != nil {
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

// TestAListOfWhatIsKnownTakesNoMemory: a list that is read again, as after a restart of
// the API server, is held until it is complete. What is in the cache is not held twice.
func TestAListOfWhatIsKnownTakesNoMemory(t *testing.T) {
	cache := source.NewCache(sourcetest.NewRecorder(), source.Options{})
	s, err := NewForREST(Config{NodeName: "n"}, &rest.Config{Host: "192.0.2.1"}, cache, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ofServices, ofSlices := s.serviceStore(), s.endpointSliceStore()
	if err := errors.Join(
		ofServices.Replace([]any{apiService("a", 80)}, "1"), ofSlices.Replace([]any{apiSlice("a", "a-1", "10.0.0.1")}, "1"),
	); err != nil {
		t.Fatal(err)
	}
	known := cache.Snapshot(service.Key{Namespace: "ns", Name: "a"})
	for port, want := range map[int32]bool{80: true, 81: false} {
		item, err := ofServices.Transformer()(apiService("a", port))
		if err != nil || (item.(reducedService).spec == known.Spec) != want {
			t.Errorf("port %d: %+v, %v; the known value: want %v", port, item, err, want)
		}
	}
	for address, want := range map[string]bool{"10.0.0.1": true, "10.0.0.2": false} {
		item, err := ofSlices.Transformer()(apiSlice("a", "a-1", address))
		if err != nil || (item.(reducedSlice).slice == known.Slices[0]) != want {
			t.Errorf("endpoint %s: %+v, %v; the known value: want %v", address, item, err, want)
		}
	}
}
