// SPDX-License-Identifier: Apache-2.0

package source

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

// TestSliceList_MatchesMap plays random changes of a list against a map.
func TestSliceList_MatchesMap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var list sliceList
	model := map[string]*service.Slice{}
	for step := range 5000 {
		name := strconv.Itoa(random.IntN(30))
		if random.IntN(2) == 0 {
			list = list.without(name)
			delete(model, name)
		} else {
			slice := &service.Slice{Name: name}
			list = list.with(slice)
			model[name] = slice
		}
		if len(list) != len(model) {
			t.Fatalf("step %d: %d slices, want %d", step, len(list), len(model))
		}
		if list.get(name) != model[name] {
			t.Fatalf("step %d: slice %s is lost, or was not removed", step, name)
		}
		sorted := slices.IsSortedFunc(list, func(a, b *service.Slice) int {
			if a.Name < b.Name {
				return -1
			}
			return 1
		})
		if !sorted {
			t.Fatalf("step %d: not sorted", step)
		}
	}
}
