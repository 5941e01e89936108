package source

// Stats counts what the cache holds and what it has done since it was made.
type Stats struct {
	// Specs and Slices are the objects held now; Slices includes those of
	// Services that have no spec.
	Specs  int
	Slices int
	// Posts counts calls of the sink, Equal the objects that were offered
	// again without a difference, Moves the slices that changed their Service.
	Posts uint64
	Equal uint64
	Moves uint64
	// Primed tells that the first full picture was delivered.
	Primed bool
}

// Stats reads the counters. All of them belong to the same moment.
func (c *Cache) Stats() Stats {
	c.mu.RLock()
	defer c.mu.RUnlock()

	stats := c.stats
	stats.Specs = len(c.specs)
	stats.Slices = len(c.owners)
	stats.Primed = c.primed
	return stats
}
