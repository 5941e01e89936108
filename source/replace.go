package source

import "github.com/sluice-proxy/sluice/service"

// ReplaceSpecs says which Services exist, all of them. Only the differences from
// what is filed are posted: the usual outcome after an outage of the API server
// is none. It walks all Services.
func (c *Cache) ReplaceSpecs(all []*service.Spec) {
	c.mu.Lock()
	var changed []*service.Spec
	wanted := make(map[service.Key]bool, len(all))
	for _, spec := range all {
		spec = c.admitted(spec)
		wanted[spec.Key] = true
		if c.storeSpec(spec) {
			changed = append(changed, spec)
		}
	}
	var gone []service.Key
	for key := range c.specs {
		if !wanted[key] {
			c.dropSpec(key)
			gone = append(gone, key)
		}
	}
	c.mu.Unlock()

	for _, spec := range changed {
		c.sink.PostSpec(spec.Key, spec)
	}
	for _, key := range gone {
		c.sink.PostSpec(key, nil)
	}
}

// ReplaceSlices says which slices exist, all of them, and posts the differences.
// It walks all slices.
func (c *Cache) ReplaceSlices(all []*service.Slice) {
	c.mu.Lock()
	var posts []slicePost
	wanted := make(map[sliceID]bool, len(all))
	for _, slice := range all {
		wanted[sliceID{slice.Service.Namespace, slice.Name}] = true
		posts = c.storeSlice(posts, slice)
	}
	for id := range c.owners {
		if !wanted[id] {
			posts = c.dropSlice(posts, id)
		}
	}
	c.mu.Unlock()
	c.postSlices(posts)
}
