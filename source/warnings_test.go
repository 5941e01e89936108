// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/sourcetest"
)

// TestCache_WarnsOnce: the cache passes each warning on once, and again only after it was gone in the meantime.
func TestCache_WarnsOnce(t *testing.T) {
	var told []string
	cache := source.NewCache(sourcetest.NewRecorder(), source.Options{
		Warn: func(w service.Warning) { told = append(told, w.Field) },
	})
	expect := func(want ...string) {
		t.Helper()
		slices.Sort(told)
		if !slices.Equal(told, want) {
			t.Errorf("warnings given are %v, want %v", told, want)
		}
		told = nil
	}
	bad := func(fields ...string) []service.Warning {
		var all []service.Warning
		for _, field := range fields {
			all = append(all, service.Warning{Object: "Service ns/a", Field: field, Problem: "bad"})
		}
		return all
	}

	cache.Warn("Service", "ns/a", bad("one"))
	expect("one")
	cache.Warn("Service", "ns/a", bad("one"))
	expect()
	cache.Warn("Service", "ns/a", bad("one", "two"))
	expect("two")

	// A relist with the same faults is silent; it forgets what it does not name.
	cache.WarnAll("Service", map[string][]service.Warning{"ns/a": bad("one", "two"), "ns/b": bad("three")})
	expect("three")
	cache.Warn("Node", "ns/b", bad("four"))
	cache.WarnAll("Service", nil)
	expect("four")
	cache.Warn("Service", "ns/a", bad("one"))
	cache.Warn("Node", "ns/b", bad("four"))
	expect("one")

	// Repaired and broken again is worth telling again.
	cache.Warn("Service", "ns/a", nil)
	cache.Warn("Service", "ns/a", bad("one"))
	expect("one")
}
