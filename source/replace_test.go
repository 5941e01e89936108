package source_test

import (
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

func TestReplaceSpecsPostsDifferences(t *testing.T) {
	cache, posts := newCache()
	cache.ReplaceSpecs([]*service.Spec{spec("a", 80), spec("b", 80)})
	posts.Expect(t, "spec ns/a", "spec ns/b")

	cache.ReplaceSpecs([]*service.Spec{spec("b", 80), spec("a", 80)})
	posts.Expect(t)

	cache.ReplaceSpecs([]*service.Spec{spec("b", 81), spec("c", 80)})
	posts.Expect(t, "spec ns/b", "spec ns/c", "spec ns/a gone")
}

func TestReplaceSlicesPostsDifferences(t *testing.T) {
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
