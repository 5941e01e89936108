// SPDX-License-Identifier: Apache-2.0

// Package sleep waits for a duration or the end of a context.
package sleep

import (
	"context"
	"time"
)

// For waits for a duration, or until the context ends. It reports whether the whole duration passed.
func For(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
