// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestIsolation_HangingService: while each transaction with a certain Service hangs, all others change within 10 s, for
// hours, also after the process was killed. The kubelet does not kill it.
func TestIsolation_HangingService(t *testing.T) {
	seeds := uint64(2)
	if testenv.All() {
		seeds = 20
	}
	for seed := range seeds {
		for _, defect := range []int{0, 1, 2, 3, 4, 5} { // 15 s, 30 s and 2 min; without memory, or the answer is lost
			t.Run(fmt.Sprintf("seed %d, defect %d", seed, defect), func(t *testing.T) { hangStory(t, seed, defect) })
		}
	}
}

func hangStory(t *testing.T, seed uint64, defect int) {
	synctest.Test(t, func(t *testing.T) {
		w, happen := withNeighbours(t, seed)
		happen(event{setService, firstChanged, 0, storyVariant}, event{setSlice, firstChanged, 0, storyVariant}, event{settle, 0, 0, 0})
		d := newRandom(seed, 91)
		for round := range 60 {
			switch {
			case round%10 == 0:
				happen(event{hangService, firstChanged, 3*(round/10)*2 + defect, storyVariant + uint64(round)})
			case round == 25:
				happen(event{kill, int(service.IPv4), 0, storyVariant}, event{pause, 0, 0, 1})
			}
			changed := []int{}
			for range 1 + d.IntN(3) {
				n := d.IntN(neighbours)
				changed = append(changed, n)
				happen(event{setSlice, n, 1, d.Uint64N(1 << 12)})
			}
			time.Sleep(changedWithin)
			synctest.Wait()
			if err := w.onTime(changed); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
			time.Sleep(time.Duration(d.IntN(60)) * time.Second)
		}
		if w.kubelet.Load().killed.Load() {
			t.Error("the kubelet kills the process")
		}
		happen(event{settle, 0, 0, 0})
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
}
