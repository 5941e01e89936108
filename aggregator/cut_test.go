// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
)

// cutModel is a model whose writes take three changes at a time.
type cutModel struct {
	*model
	// sizes has the number of changes of each write, and left what the batch says.
	sizes, left []int
}

func (m *cutModel) Write(ctx context.Context, b *dataplane.Batch) dataplane.Receipt {
	m.sizes, m.left = append(m.sizes, len(b.Changes)), append(m.left, b.Left)
	return m.model.Write(ctx, b)
}

// TestAggregator_WriteCut: the parts of a plan follow each other, and each Service is acknowledged with its last part.
// Tries of a bisection are not cut.
func TestAggregator_WriteCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &cutModel{model: &model{took: ms}}
		w := contract(m)
		w.Cut = func(changes []dataplane.Change) []dataplane.Change { return changes[:min(3, len(changes))] }
		h := openWriter(t, m.model, w, Config{})
		h.Prime(nil)
		h.Submit(scaffold())
		synctest.Wait()
		write := func(name string, sizes, left []int) {
			t.Helper()
			time.Sleep(20 * ms)
			synctest.Wait()
			is(t, "changes of "+name, m.sizes, sizes)
			is(t, "changes left of "+name, m.left, left)
			is(t, "dirty after "+name, h.machine.ledger.Stats().Dirty, 0)
			m.sizes, m.left = nil, nil
		}
		write("the scaffold", []int{1}, []int{0})
		for i := range 7 {
			h.submit(fmt.Sprint("s", i), 1, 1, "a")
		}
		write("small Services", []int{3, 3, 1}, []int{4, 1, 0})
		h.submit("s0", 1, 2, "b", "b", "b", "b", "b", "b", "b")
		write("a large Service", []int{3, 3, 1}, []int{4, 1, 0})
		h.submit("s0", 1, 3, "c", "c", "c", "c", "poison")
		h.submit("s1", 1, 2, "c")
		time.Sleep(time.Minute)
		synctest.Wait()
		if text := m.text(); !h.machine.ledger.Held(keyOf("s0")) || !strings.Contains(text, "s1/0=c") || !strings.Contains(text, "s0/0=b") {
			t.Errorf("the kernel has %s", text)
		}
		if !slices.Contains(m.sizes, 7) { // five that change, and two that go
			t.Errorf("writes of %v changes, want one of all that the Service changes", m.sizes)
		}
	})
}
