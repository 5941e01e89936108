// SPDX-License-Identifier: Apache-2.0

package kernel

import "github.com/sluice-proxy/sluice/dataplane"

// Turn returns the first turn of a batch, for tests.
func Turn(changes []dataplane.Change, most int) (now, left []dataplane.Change) {
	return (&turns{most: most}).choose(changes)
}
