// SPDX-License-Identifier: Apache-2.0

package netns

import "testing"

// TestBuild_FailureLeavesNothing: a failed Build returns no network.
func TestBuild_FailureLeavesNothing(t *testing.T) {
	n, err := Build(Plan{Cables: []Cable{{Router: "r", Leaf: "a", Port: "a", AtRouter: Prefixes("10.0.0.1/24", "10.0.0.1/24")}}})
	if err == nil || n != nil {
		t.Errorf("%v, %v, want an error and no network", n, err)
	}
}
