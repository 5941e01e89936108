// SPDX-License-Identifier: Apache-2.0

package balance

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// TestWorker_RestsWithoutServices: after announcements failed or were lost, the worker rests and its failure ends when
// the only adapting Service is removed.
func TestWorker_RestsWithoutServices(t *testing.T) {
	for _, failure := range []error{errors.New("no buffer space"), nil} {
		synctest.Test(t, func(t *testing.T) {
			var failed []error
			w := New(Config{Outliers: true, Observe: func(service.Key, *service.Observed) {}, Listen: func(Event) {},
				Snapshot: func(service.Key) service.Snapshot { return service.Snapshot{} },
				Failed:   func(err error) { failed = append(failed, err) }})
			k := newWorker(w)
			s := newTracked(service.Key{Namespace: "demo", Name: "web"})
			k.services[s.key] = s
			k.need(s, true, false)
			s.outliers = newOutliers(time.Second)
			if failure != nil {
				k.fail(failure)
			} else {
				k.hear(nil, true, nil)
			}
			k.leave(s)
			ticks := 0
			for range 100 {
				if !k.restless() {
					break
				}
				time.Sleep(look)
				ticks++
				k.tick(context.Background(), time.Now())
			}
			if ticks == 100 || failure != nil && (len(failed) != 2 || failed[1] != nil) {
				t.Errorf("%v: %d ticks without a Service; told %v", failure, ticks, failed)
			}
		})
	}
}
