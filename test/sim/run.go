package sim

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
)

// run plays a scenario in a bubble of its own, and gives what has happened and
// what was wrong. Log may be nil. The bubble itself ends the test when a
// goroutine is left.
func run(t *testing.T, s scenario, log func(string)) (seen tally, err error) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { seen, err = play(s, log) })
	return seen, err
}

// play makes everything happen, and ends in a quiet point, an empty cluster, and
// a process that has stopped.
func play(s scenario, log func(string)) (tally, error) {
	w, err := newWorld(s.seed, log)
	if err != nil {
		return nil, err
	}
	err = w.play(s.events)
	return w.witness.tally(), errors.Join(err, w.close())
}

func (w *world) play(events []event) error {
	for i, e := range events {
		if err := w.happen(e); err != nil {
			return fmt.Errorf("event %d, %v: %w", i, e, err)
		}
	}
	if err := w.settle(); err != nil {
		return fmt.Errorf("in the end: %w", err)
	}
	return w.end()
}
