// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"testing"
)

// TestTakeover_FormerRelease: a base chain of a previous release is removed without a rejection, also while its hook is
// still registered. Otherwise the guard reports it.
func TestTakeover_FormerRelease(t *testing.T) {
	for seed := uint64(1); seed <= 6; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			events := append(story(seed), event{settle, 0, 0, 0}, event{upgrade, 0, 0, 0}, event{settle, 0, 0, 0})
			if _, err := run(t, scenario{seed, events}, nil); err != nil {
				t.Error(beginning(err))
			}
		})
	}
}
