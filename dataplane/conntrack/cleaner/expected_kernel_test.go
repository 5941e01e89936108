// SPDX-License-Identifier: Apache-2.0

package cleaner_test

import (
	"context"
	"testing"
	"time"
)

// TestKernelCleaner_FlowsOfUnprogrammedView: a sweep keeps flows to an endpoint whose view was submitted and written
// but not yet reported as programmed.
func TestKernelCleaner_FlowsOfUnprogrammedView(t *testing.T) {
	eachFamily(t, func(w *world) {
		w.stop()
		w.gather = 200 * time.Millisecond // for what follows to come before the sweep
		w.start()
		w.write(w.view(w.a))
		w.cleaner.Programmed(context.Background(), w.family, w.view(w.a))
		both := w.view(w.a, w.b)
		w.cleaner.Submitted(context.Background(), w.family, both)
		w.write(both)
		var p *peer
		for range 100 { // the kernel chooses
			p = w.dial(w.clusterIP, servicePort)
			if who, _ := p.ask(patience); who == "b" {
				break
			}
		}
		w.expectDeleted(w.awaitSwept(), 0, "while the kernel is ahead")
		p.expect("b", "then")
		p.expectPackets(2, "its flow")
		w.expectDeleted(w.tell(both), 0, "once the view is programmed")
		w.cleaner.Submitted(context.Background(), w.family, w.view(w.a))
		w.write(w.view(w.a))
		w.expectDeleted(w.tell(w.view(w.a)), 1, "once the endpoint has left")
		p.expect("a", "at last")
	})
}
