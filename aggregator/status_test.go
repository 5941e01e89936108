// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// TestStatus_FragmentArrivesDuringFold: OldestPending stays recent when, under constant load, a fragment always arrives
// while others are folded. A wrong age would make the health check end the process.
func TestStatus_FragmentArrivesDuringFold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a *Aggregator
		sequence := uint64(1)
		submit := func() {
			sequence++
			for name, revision := range map[string]service.Revision{
				"late": {Incarnation: 1}, "fresh": {Incarnation: 1, Sequence: sequence}} {
				f := fragment(name, []string{fmt.Sprint(sequence)})
				f.Revision = revision
				a.Submit(f)
			}
		}
		a, err := New(Config{Domain: "model", Writer: owned(contract(&model{took: time.Second, objects: map[dataplane.ID]string{}})),
			Listen: func(e Event) {
				if _, late := e.(LateRejected); late {
					submit() // the next ones arrive in the middle of a fold
				}
			}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx) }()
		first := fragment("late", []string{"1"})
		first.Revision = service.Revision{Incarnation: 2}
		a.Submit(first)
		a.Prime(nil)
		time.Sleep(time.Second)
		submit()
		var oldest time.Duration
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			if since := a.Status().OldestPending; !since.IsZero() {
				oldest = max(oldest, time.Since(since))
			}
		}
		if oldest > 3*time.Second {
			t.Errorf("the oldest pending change is said to be up to %v old, want at most 3s: two writes and a deadline", oldest)
		}
		cancel()
		is(t, "end", <-ended, nil)
	})
}
