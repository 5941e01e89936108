// SPDX-License-Identifier: Apache-2.0

package source

import (
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// warningBook remembers the warnings that were reported, so that a relist does not
// repeat them. It holds entries for bad objects only. It is not safe for concurrent use.
type warningBook struct {
	given map[string]map[string][]service.Warning // by kind, then object
}

// set records the warnings of one object and returns those that are new.
func (b *warningBook) set(kind, object string, warnings []service.Warning) []service.Warning {
	old := b.given[kind][object]
	if len(warnings) == 0 {
		delete(b.given[kind], object)
		return nil
	}
	if b.given == nil {
		b.given = make(map[string]map[string][]service.Warning)
	}
	if b.given[kind] == nil {
		b.given[kind] = make(map[string][]service.Warning)
	}
	b.given[kind][object] = slices.Clone(warnings)

	var fresh []service.Warning
	for _, warning := range warnings {
		if !slices.Contains(old, warning) {
			fresh = append(fresh, warning)
		}
	}
	return fresh
}

// replace records the warnings of all objects of a kind, forgets the objects
// that are not named, and returns the warnings that are new.
func (b *warningBook) replace(kind string, all map[string][]service.Warning) []service.Warning {
	for object := range b.given[kind] {
		if len(all[object]) == 0 {
			delete(b.given[kind], object)
		}
	}
	var fresh []service.Warning
	for object, warnings := range all {
		fresh = append(fresh, b.set(kind, object, warnings)...)
	}
	return fresh
}

// Warn takes all warnings about one object; none means that it is correct or gone.
// Only new warnings reach Options.Warn.
func (c *Cache) Warn(kind, object string, warnings []service.Warning) {
	c.mu.Lock()
	fresh := c.warnings.set(kind, object, warnings)
	c.mu.Unlock()
	c.tell(fresh)
}

// WarnAll is Warn for all objects of a kind together. An object that is not named is
// correct or gone.
func (c *Cache) WarnAll(kind string, all map[string][]service.Warning) {
	c.mu.Lock()
	fresh := c.warnings.replace(kind, all)
	c.mu.Unlock()
	c.tell(fresh)
}

func (c *Cache) tell(warnings []service.Warning) {
	if c.warn == nil {
		return
	}
	for _, warning := range warnings {
		c.warn(warning)
	}
}
