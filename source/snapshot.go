package source

import (
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// Snapshot returns the newest values of one Service. It may be newer than the
// last post that the caller has seen, never older.
func (c *Cache) Snapshot(key service.Key) service.Snapshot {
	c.mu.RLock()
	defer c.mu.RUnlock()

	return service.Snapshot{Spec: c.specs[key], Slices: slices.Clone(c.slices[key])}
}

// Keys lists the Services that have a spec, sorted. It walks all of them, so it
// is for start, for tests and for people.
func (c *Cache) Keys() []service.Key {
	c.mu.RLock()
	defer c.mu.RUnlock()
	keys := make([]service.Key, 0, len(c.specs))
	for key := range c.specs {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, service.Key.Compare)
	return keys
}
