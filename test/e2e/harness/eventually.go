package harness

import (
	"context"
	"testing"
	"time"
)

// Eventually calls f until it returns nil and returns how long that took. When the time is over, the
// test ends with f's last error. The context given to f ends with the time.
func Eventually(t testing.TB, limit time.Duration, what string, f func(context.Context) error) time.Duration {
	t.Helper()
	limit = slow(limit)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	start := time.Now()
	for {
		err := f(ctx)
		if err == nil {
			took := time.Since(start)
			t.Logf("%s after %v", what, took.Round(time.Millisecond))
			return took
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %s: %v", limit, what, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
