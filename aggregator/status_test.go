package aggregator

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestStatusTellsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{took: time.Minute}
		h := open(t, m, Config{})
		h.Prime(nil)
		synctest.Wait()
		if s := h.Status(); s.Waiting != 0 || !s.Submitted.IsZero() {
			t.Errorf("before anything is submitted: %d wait, the newest since %v", s.Waiting, s.Submitted)
		}
		h.submit("a", 1, 1, "x")
		time.Sleep(time.Second) // a is being written now
		h.submit("b", 1, 1, "x")
		time.Sleep(time.Second)
		h.submit("b", 1, 2, "y") // takes the seat of the one before
		now := time.Now()
		synctest.Wait()
		if s := h.Status(); s.Waiting != 1 || !s.Submitted.Equal(now) {
			t.Errorf("%d wait, the newest since %v; want 1 since %v", s.Waiting, s.Submitted, now)
		}
		time.Sleep(5 * time.Minute)
		if s := h.Status(); s.Waiting != 0 || !s.OldestPending.IsZero() || !s.Submitted.Equal(now) {
			t.Errorf("all written: %d wait, pending since %v, the newest submitted at %v", s.Waiting, s.OldestPending, s.Submitted)
		}
	})
}
