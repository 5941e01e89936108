// SPDX-License-Identifier: Apache-2.0

// Package sleep waits for a duration or the end of a context, and computes the pauses between retries.
package sleep

import (
	"context"
	"math"
	"time"
)

// Backoff returns the pause after a number of failures: the first pause, doubled with each further failure, up to the
// limit.
func Backoff(failures float64, first, limit time.Duration) time.Duration {
	return time.Duration(min(float64(first)*math.Exp2(max(0, failures-1)), float64(limit)))
}

// For waits for a duration, or until the context ends. It reports whether the whole duration passed.
func For(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Retry calls f until the context ends. The pause after a call doubles from 1 s to 30 s. It starts over after a call that
// took longer than 30 s, because f worked for a while.
func Retry(ctx context.Context, f func()) {
	const first, limit = time.Second, 30 * time.Second
	for pause := first; ctx.Err() == nil; pause = min(2*pause, limit) {
		began := time.Now()
		f()
		if time.Since(began) > limit {
			pause = first
		}
		For(ctx, pause)
	}
}
