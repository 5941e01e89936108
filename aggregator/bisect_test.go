// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

func keys(count int) []service.Key {
	var ks []service.Key
	for i := range count {
		ks = append(ks, service.Key{Namespace: "ns", Name: fmt.Sprintf("s%05d", i)})
	}
	return ks
}

// account is what carrying out a bisection has cost and brought.
type account struct {
	rejected, landed int
	applied          map[service.Key]bool
	quarantined      map[service.Key]bool
}

// carry carries a bisection out against a kernel that rejects the bad keys. Named returns
// the keys that the tool names for a rejected group.
func carry(t *testing.T, s *bisection, bad map[service.Key]bool, named func([]service.Key) []service.Key) account {
	t.Helper()
	a := account{applied: map[service.Key]bool{}, quarantined: map[service.Key]bool{}}
	for tries := 0; !s.idle(); tries++ {
		if tries > 100_000 {
			t.Fatal("the bisection does not end")
		}
		group := s.next()
		if group == nil {
			break
		}
		if len(group) > groupMax {
			t.Fatalf("%d tried at once", len(group))
		}
		var culprits []service.Key
		for _, k := range group {
			if bad[k] {
				culprits = append(culprits, k)
			}
		}
		if len(culprits) == 0 {
			a.landed++
			for _, k := range group {
				a.applied[k] = true
			}
			s.landed()
			continue
		}
		a.rejected++
		if culprit, found := s.rejected(group, named(culprits)); found {
			if len(group) != 1 {
				t.Fatalf("%v was quarantined in a group of %d", culprit, len(group))
			}
			a.quarantined[culprit] = true
		}
	}
	return a
}

func none([]service.Key) []service.Key              { return nil }
func all(culprits []service.Key) []service.Key      { return culprits }
func theFirst(culprits []service.Key) []service.Key { return culprits[:1] }

// TestBisection_QuarantinesOnlyCulpritsQuick: for random culprits, a bisection ends, quarantines exactly the culprits
// and applies all other Services. The number of rejected tries per culprit is logarithmic.
func TestBisection_QuarantinesOnlyCulpritsQuick(t *testing.T) {
	seeds := uint64(60)
	if testenv.All() {
		seeds = 400
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 2))
		ks := keys(1 + random.IntN(3000))
		bad := map[service.Key]bool{}
		for range random.IntN(1 + random.IntN(len(ks))) {
			bad[ks[random.IntN(len(ks))]] = true
		}
		for name, choose := range map[string]func([]service.Key) []service.Key{
			"none named": none, "all named": all, "one named": theFirst,
		} {
			s := &bisection{}
			var named []service.Key
			if len(bad) > 0 {
				for _, k := range ks {
					if bad[k] {
						named = append(named, k)
					}
				}
				named = choose(named)
			}
			s.suspect(ks, named)
			got := carry(t, s, bad, choose)
			for _, k := range ks {
				if got.quarantined[k] != bad[k] || got.applied[k] == bad[k] {
					t.Fatalf("seed %d, %s: %v: bad %t, quarantined %t, applied %t",
						seed, name, k, bad[k], got.quarantined[k], got.applied[k])
				}
			}
			if most := len(bad) * (bits.Len(uint(min(len(ks), groupMax))) + 1); got.rejected > most {
				t.Fatalf("seed %d, %s: %d rejected tries for %d of %d, want at most %d",
					seed, name, got.rejected, len(bad), len(ks), most)
			}
		}
	}
}

// TestBisection_ManyNamedStaysLogarithmic: a bisection does not try each Service alone when the writer names many
// Services of a rejected write.
func TestBisection_ManyNamedStaysLogarithmic(t *testing.T) {
	ks := keys(2000)
	for named := range 1000 {
		s, bad := &bisection{}, map[service.Key]bool{ks[named/2]: true}
		choose := func(group []service.Key) []service.Key { return ks[:named] }
		s.suspect(ks, choose(nil))
		got := carry(t, s, bad, choose)
		if tries, most := got.rejected+got.landed, 40; tries > most || !got.quarantined[ks[named/2]] || len(got.applied) != len(ks)-1 {
			t.Fatalf("%d named: %d tries, want at most %d; quarantined %v, %d applied", named, tries, most, got.quarantined, len(got.applied))
		}
	}
}

// TestAggregator_SearchNotStarvedByChanges: a bisection finds the culprit and applies the unaffected suspects within a
// minute, although writes take longer than the maximum delay and other Services change all the time.
func TestAggregator_SearchNotStarvedByChanges(t *testing.T) {
	for _, receipts := range []receipts{whole, wholeFirstNamed} {
		synctest.Test(t, func(t *testing.T) {
			m := &model{receipts: receipts, took: 1500 * ms}
			h := ready(t, m, Config{Pace: Pace{MaxWriteShare: 0.25}})
			h.Submit(scaffold())
			for i := range 50 {
				h.submit(fmt.Sprintf("suspect%02d", i), 1, 1, "old")
			}
			time.Sleep(time.Minute)
			stop := make(chan struct{})
			go func() {
				for sequence := uint64(1); ; sequence++ {
					select {
					case <-stop:
						return
					case <-time.After(300 * ms):
						h.submit(fmt.Sprint("other", sequence%10), 1, sequence, fmt.Sprint(sequence))
					}
				}
			}()
			time.Sleep(10 * time.Second)
			h.questions <- func() {
				for i := range 50 {
					h.submit(fmt.Sprintf("suspect%02d", i), 1, 2, map[bool]string{true: "poison", false: "new"}[i == 17])
				}
			}
			took := h.await(time.Hour, func(kernel string) bool { return strings.Count(kernel, "=new") == 49 })
			time.Sleep(time.Minute)
			if took > time.Minute || len(quarantined(h)) != 1 {
				t.Errorf("49 unaffected Services are served after %v; quarantined %v", took, quarantined(h))
			}
			if pending := time.Since(h.Status().OldestPending); pending > 10*time.Second {
				t.Errorf("the oldest pending change is %v old", pending)
			}
			t.Logf("49 unaffected Services are served after %v", took)
			close(stop)
			synctest.Wait()
		})
	}
}
