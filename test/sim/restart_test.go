package sim

import (
	"fmt"
	"testing"
)

// A new process finds everything as it has to be, and leaves it alone. What
// changed while nobody was there is all that is written.
func TestARestartWritesWhatHasChangedAndNothingElse(t *testing.T) {
	settledWorld(t, func(w *world) {
		before := w.efforts()
		restarted := func() error {
			if err := w.happen(event{do: restart}); err != nil {
				return err
			}
			return w.settle()
		}
		if err := restarted(); err != nil {
			t.Fatal(err)
		}
		if got := w.efforts() - before; got != 0 {
			t.Errorf("%d commands wrote although nothing has changed", got)
		}
		for n := range w.cluster.specs {
			w.cluster.change(event{do: removeService, n: n}) // the source learns of it later
			break
		}
		if err := restarted(); err != nil {
			t.Error(fmt.Errorf("after a Service has gone unseen: %w", err))
		}
		if w.efforts() == before {
			t.Error("a Service has gone unseen, and nothing was written")
		}
	})
}
