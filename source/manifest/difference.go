package manifest

import (
	"slices"

	"github.com/sluice-proxy/sluice/source"
)

// difference lists the changes for the cache.
type difference struct {
	set     []object
	removed []objectID
}

// feed applies the changes to the cache: slices before Services, so that a new Service
// starts with all of its endpoints, and additions before removals.
func (d difference) feed(cache *source.Cache, nodeName string) {
	slices.SortStableFunc(d.set, func(a, b object) int { return feedRank(a) - feedRank(b) })
	for _, object := range d.set {
		object.feed(cache, nodeName)
	}
	for _, id := range d.removed {
		cache.Warn(id.kind, id.path(), nil)
		id.remove(cache)
	}
}

func feedRank(o object) int {
	if o.id.kind == kindService {
		return 1
	}
	return 0
}
