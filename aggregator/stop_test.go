// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/sluice-proxy/sluice/dataplane"
)

// slowWriter writes only once it may, unless its context ends before.
type slowWriter struct {
	*model
	begun, may chan struct{}
	outcomes   []dataplane.Outcome
}

func (w *slowWriter) Write(ctx context.Context, b *dataplane.Batch) dataplane.Receipt {
	w.begun <- struct{}{}
	r := dataplane.Receipt{Outcome: dataplane.Unknown}
	select {
	case <-ctx.Done():
	case <-w.may:
		r = w.model.Write(ctx, b)
	}
	w.outcomes = append(w.outcomes, r.Outcome)
	return r
}

// TestAggregator_StopDuringWrite: an aggregator that is stopped during a write completes this write and begins no
// other.
func TestAggregator_StopDuringWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &slowWriter{model: &model{}, begun: make(chan struct{}, 9), may: make(chan struct{})}
		h := openWriter(t, w.model, contract(w), Config{})
		h.Submit(scaffold())
		h.submit("a", 1, 1, "a1")
		h.Prime(nil)
		<-w.begun
		h.submit("b", 1, 1, "b1") // waits for the next write
		ended := make(chan struct{})
		go func() { defer close(ended); h.stop() }()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("the aggregator has ended before its write")
		default:
		}
		close(w.may)
		<-ended
		is(t, "outcomes", w.outcomes, []dataplane.Outcome{dataplane.Landed})
		is(t, "kernel", h.text(), "a/0=a1 base")
	})
}
