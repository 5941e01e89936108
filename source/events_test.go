package source_test

import (
	"testing"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

func TestEventsCountWhatWasTold(t *testing.T) {
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

func TestEventsCountWhatIsListed(t *testing.T) {
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
