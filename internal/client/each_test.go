// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

// TestEach_UntilNoneIsLeft: Each asks every proxy as often as needed, and a limited number of proxies at a time.
func TestEach_UntilNoneIsLeft(t *testing.T) {
	var now, most atomic.Int32
	asked := make([]int, 50)
	Each(t.Context(), 4, len(asked), func(_ context.Context, i int) (bool, time.Duration) {
		n := now.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		time.Sleep(time.Millisecond)
		now.Add(-1)
		asked[i]++
		return asked[i] <= i%3, time.Millisecond
	})
	for i, n := range asked {
		if n != 1+i%3 {
			t.Errorf("proxy %d was asked %d times", i, n)
		}
	}
	if most.Load() > 4 {
		t.Errorf("%d proxies were asked at a time", most.Load())
	}
	ended, end := context.WithCancel(t.Context())
	end()
	Each(ended, 1, 1, func(context.Context, int) (bool, time.Duration) { return true, time.Hour })
}
