// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

// contents returns the objects of all files, and the problems of each bad file, both sorted by file. A bad file counts
// as it was before. If several files hold an object, that of the first file by name counts.
func contents(files map[string]*fileState) (objects []object, bad [][]Problem) {
	type place struct {
		file string
		line int
	}
	first := make(map[objectID]place)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		problems := slices.Clone(files[file].problems)
		for _, o := range files[file].objects {
			at, again := first[o.id]
			switch {
			case !again:
				first[o.id] = place{file, o.line}
				objects = append(objects, o)
			case len(files[file].problems) == 0:
				problems = append(problems, Problem{File: file, Line: o.line, Object: o.id.String(), Field: "metadata.name",
					Message: fmt.Sprintf("is already defined in %s:%d", at.file, at.line)})
			}
		}
		if len(problems) > 0 {
			bad = append(bad, problems)
		}
	}
	return objects, bad
}

// feed replaces the contents of the cache, which posts what differs: slices before Services, so that a new Service
// starts with all of its endpoints. Of the Nodes, the one named nodeName counts. A deleted Node stays in use for rules,
// as with an API server. feed marks the Node as deleted only if it was there before (had): otherwise, a previous
// process may have read it from a file that is rejected now. feed returns whether the Node is there.
func feed(cache *source.Cache, nodeName string, objects []object, had bool) (has bool) {
	var specs []*service.Spec
	var all []*service.Slice
	var node *service.NodeObject
	ranges := make(map[string][]netip.Prefix)
	warnings := map[string]map[string][]service.Warning{kindService: {}, kindEndpointSlice: {}, kindNode: {}, kindServiceCIDR: {}}
	for _, o := range objects {
		warnings[o.id.kind][o.id.path()] = o.warnings
		switch {
		case o.spec != nil:
			specs = append(specs, o.spec)
		case o.slice != nil:
			all = append(all, o.slice)
		case o.id.kind == kindNode && o.id.name == nodeName:
			node = o.node
		case o.id.kind == kindServiceCIDR:
			ranges[o.id.name] = o.ranges
		}
	}
	for kind, of := range warnings {
		cache.WarnAll(kind, of)
	}
	cache.ReplaceServiceCIDRs(ranges)
	if node != nil {
		cache.SetNode(node)
	} else if had {
		cache.RemoveNode()
	}
	cache.ReplaceSlices(all)
	cache.ReplaceSpecs(specs)
	return node != nil
}
