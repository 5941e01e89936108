package kube

import (
	"testing"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/sourcetest"
)

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
