// SPDX-License-Identifier: Apache-2.0

package trace

import "context"

// RunAt is Run with another limit of selected packets per second and rule.
func RunAt(perSecond uint64) func(context.Context, Flow, func()) (*Record, error) {
	return func(ctx context.Context, flow Flow, ready func()) (*Record, error) {
		return run(ctx, flow, perSecond, ready)
	}
}
