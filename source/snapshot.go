package source

import (
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// Snapshot is everything the cache knows about one Service at one moment. The
// values are shared with the cache and with other readers; they never change.
type Snapshot struct {
	// Spec is nil when the Service does not exist or is not proxied.
	Spec *service.Spec
	// Slices are sorted by name.
	Slices []*service.Slice
}

// Snapshot gives the newest values of one Service. It may be newer than the
// last post that the caller has seen, never older.
func (c *Cache) Snapshot(key service.Key) Snapshot {
	c.mu.RLock()
	defer c.mu.RUnlock()

	return Snapshot{Spec: c.specs[key], Slices: slices.Clone(c.slices[key])}
}

// Keys lists the Services that have a spec, sorted. It walks all of them, so it
// is for start, for tests and for people.
func (c *Cache) Keys() []service.Key {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.sortedKeys()
}

func (c *Cache) sortedKeys() []service.Key {
	keys := make([]service.Key, 0, len(c.specs))
	for key := range c.specs {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, service.Key.Compare)
	return keys
}
