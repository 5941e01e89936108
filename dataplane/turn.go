// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"maps"
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// usualBody is the length, in bytes, up to which the content of an object does not count in its size. Elements are
// shorter; the chain of a port in iptables mode has about 100 bytes for each endpoint.
const usualBody = 256

// Size returns the estimated cost of a change, in changes of small objects: 1, or more for a long chain.
func (c *Change) Size() int {
	longest := 0
	for _, o := range [...]*Object{c.Before, c.After} {
		if o != nil {
			longest = max(longest, len(o.Body))
		}
	}
	return 1 + longest/usualBody
}

// WaitedMax is the maximum number of turns that a change waits for large Services, which may change all the time.
const WaitedMax = 20

// NextLarge returns the size of each Service in a batch, and the large Service whose turn follows that of last. A
// Service is large if its size is above most. Large Services take turns in the order of keys, so one that changes all
// the time does not keep the others waiting. It reports false if no Service is large.
func NextLarge(changes []Change, most int, last service.Key) (sizes map[service.Key]int, next service.Key, found bool) {
	sizes = map[service.Key]int{}
	for i := range changes {
		sizes[changes[i].Owner] += changes[i].Size()
	}
	large := slices.DeleteFunc(slices.Collect(maps.Keys(sizes)), func(key service.Key) bool {
		return sizes[key] <= most || key == service.Node
	})
	if len(large) == 0 {
		return sizes, last, false
	}
	slices.SortFunc(large, service.Key.Compare)
	after := slices.IndexFunc(large, func(key service.Key) bool { return key.Compare(last) > 0 })
	return sizes, large[max(after, 0)], true
}
