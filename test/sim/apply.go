package sim

import (
	"github.com/sluice-proxy/sluice/source"
)

// change makes the cluster's state follow an event and gives what the source
// has to say to the cache; nil for events that are not the API's.
func (c *cluster) change(e event) func(*source.Cache) {
	switch e.do {
	case setService, poisonService, curseService:
		return c.setSpec(e)
	case removeService:
		delete(c.specs, e.n)
		c.record(e.n)
		return func(cache *source.Cache) { cache.RemoveSpec(keyOf(e.n)) }
	case setSlice:
		return c.setSlice(e, e.n)
	case giveSlice:
		// Owners are of the same namespace: every third Service.
		return c.setSlice(e, (e.n+3*(1+int(e.shape%3)))%services)
	case removeSlice:
		return c.removeSlice(e)
	case setNode:
		c.node = shapeNode(e.shape)
		c.recordAll()
		node := *c.node
		return func(cache *source.Cache) { cache.SetNode(&node) }
	default:
		return nil
	}
}

func (c *cluster) setSpec(e event) func(*source.Cache) {
	spec := shapeSpec(e.n, e.shape)
	switch e.do {
	case poisonService:
		spec.Ports[0].Port = poisonBase + uint16(e.m)
	case curseService:
		spec.Ports[0].Port = curseBase + uint16(e.m)
	}
	c.specs[e.n] = spec
	c.record(e.n)
	return func(cache *source.Cache) { cache.SetSpec(spec) }
}

// setSlice concerns the slice's owner, and whoever owned it before.
func (c *cluster) setSlice(e event, owner int) func(*source.Cache) {
	slice := shapeSlice(e.n, e.m, owner, e.shape)
	before, known := c.owners[slice.Name]
	c.slices[slice.Name], c.owners[slice.Name] = slice, owner
	c.record(owner)
	if known {
		c.record(before)
	}
	return func(cache *source.Cache) { cache.SetSlice(slice) }
}

func (c *cluster) removeSlice(e event) func(*source.Cache) {
	name := sliceName(e.n, e.m)
	delete(c.slices, name)
	if owner, known := c.owners[name]; known {
		c.record(owner)
	}
	return func(cache *source.Cache) { cache.RemoveSlice(keyOf(e.n).Namespace, name) }
}

// clear removes everything that the API knows, except the node.
func (c *cluster) clear() func(*source.Cache) {
	clear(c.specs)
	clear(c.slices)
	c.recordAll()
	return func(cache *source.Cache) {
		cache.ReplaceSpecs(nil)
		cache.ReplaceSlices(nil)
	}
}

// repeat says everything once more, in new values that are equal to the old
// ones, and tells of a slice that belongs to nobody.
func (c *cluster) repeat() func(*source.Cache) {
	var calls []func(*source.Cache)
	for _, spec := range c.specs {
		again := *spec
		calls = append(calls, func(cache *source.Cache) { cache.SetSpec(&again) })
	}
	for _, slice := range c.slices {
		again := *slice
		again.Trigger = epoch
		calls = append(calls, func(cache *source.Cache) { cache.SetSlice(&again) })
	}
	if c.node != nil {
		again := *c.node
		calls = append(calls, func(cache *source.Cache) { cache.SetNode(&again) })
	}
	return func(cache *source.Cache) {
		for _, call := range calls {
			call(cache)
		}
		orphan := shapeSlice(0, 99, 0, 1)
		orphan.Service.Name, orphan.Name = "nobody", "nobody-1"
		cache.SetSlice(orphan)
		cache.RemoveSlice(orphan.Service.Namespace, orphan.Name)
	}
}

// cureAll ends every trouble of the present.
func (c *cluster) cureAll() {
	for _, spec := range c.specs {
		c.troubles.cure(spec.Ports[0].Port)
	}
	c.recordAll()
}
