// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestAggregator_HangFoundBeforeProcessKill: the longest shared write, its witness and a try together end before
// /livez fails, and the kubelet kills the process later still.
func TestAggregator_HangFoundBeforeProcessKill(t *testing.T) {
	if longest := max(writeLong, writeAlone) + writeLong + tryLong; longest >= Liveness {
		t.Errorf("a write, its witness and a try may take %v; /livez fails after %v", longest, Liveness)
	}
	manifest, err := os.ReadFile("../deploy/base/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, probe, _ := strings.Cut(string(manifest), "livenessProbe:")
	number := func(name string) time.Duration {
		found := regexp.MustCompile(name + `: (\d+)`).FindStringSubmatch(probe)
		if found == nil {
			t.Fatalf("no %s in %s", name, probe)
		}
		seconds, _ := strconv.Atoi(found[1])
		return time.Duration(seconds)
	}
	// The first failing answer comes up to a period after the bound, the last one so many periods later.
	if killed := Liveness + (number("failureThreshold")-1)*number("periodSeconds")*time.Second; killed < Liveness+tryLong || killed > jobTimeout {
		t.Errorf("deploy/base kills after %v, want between %v and %v", killed, Liveness+tryLong, jobTimeout)
	}
	if number("timeoutSeconds") >= number("periodSeconds") {
		t.Error("probes of deploy/base overlap")
	}
}

// kubelet asks for liveness, as deploy/base has it.
type kubelet struct {
	row, kills int
	oldest     time.Duration
}

func (k *kubelet) probe(s Status) {
	age := time.Duration(0)
	if !s.OldestPending.IsZero() {
		age = time.Since(s.OldestPending)
	}
	k.oldest = max(k.oldest, age)
	if k.row++; age < Liveness {
		k.row = 0
	}
	if k.row == 6 {
		k.kills++
	}
}

// hanging is a Service whose writes hang, or fail slowly.
type hanging struct {
	outcome dataplane.Outcome
	// takes is how long a write lasts; it ends earlier if it is cut and deaf is not set. A write that is not cut lands
	// if lands is set.
	takes       time.Duration
	lands, deaf bool
}

func (h hanging) stumbler() *stumbler {
	s := &stumbler{outcome: h.outcome, slow: 50 * ms}
	switch {
	case h.deaf:
		s.takes = h.takes
	default:
		s.takes, s.hangs = 0, true
	}
	if h.lands {
		s.hangs = false
		s.needs = func(b *dataplane.Batch) time.Duration {
			if writes(b, "slow") {
				return h.takes
			}
			return 0
		}
	}
	return s
}

// TestAggregator_HangDoesNotDelayChanges: while the writes of one Service hang for hours, each change of the other
// Services lands within 10 s, and the kubelet does not kill the process.
func TestAggregator_HangDoesNotDelayChanges(t *testing.T) {
	for _, h := range []hanging{
		{outcome: dataplane.Busy, takes: time.Hour}, {outcome: dataplane.Unknown, takes: time.Hour},
		{outcome: dataplane.Busy, takes: 15 * time.Second, lands: true}, {outcome: dataplane.Unknown, takes: 30 * time.Second, lands: true},
		{outcome: dataplane.Busy, takes: 2 * time.Minute, lands: true},
	} {
		for _, churn := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v after %v, lands %t, changes %t", h.outcome, h.takes, h.lands, churn), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := stumbling(t, h.stumbler())
					word := map[bool]string{true: "slow", false: "stumble"}[h.lands]
					for i := range 20 {
						a.submit(fmt.Sprintf("good%02d", i), 1, 1, "0")
					}
					a.submit("bad", 1, 1, "served")
					time.Sleep(2 * time.Second)
					var k kubelet
					var longest time.Duration
					hours := 1
					if testenv.All() {
						hours = 6
					}
					for round := uint64(2); round < uint64(hours*360); round++ {
						if churn || round == 2 {
							a.submit("bad", 1, round, fmt.Sprint(word, round))
						}
						// Most change with the bad one; some while it is tried.
						for i := range round % 3 {
							a.submit(fmt.Sprintf("good%02d", (round+i)%20), 1, round, fmt.Sprint("v", round))
						}
						time.Sleep(time.Duration(round%40) * 100 * ms)
						a.submit("good00", 1, 1<<20+round, fmt.Sprint("w", round))
						longest = max(longest, a.await(time.Minute, func(kernel string) bool {
							return strings.Contains(kernel, fmt.Sprintf("good00/0=w%d ", round))
						}))
						for until := time.Now().Truncate(10 * time.Second).Add(10 * time.Second); time.Now().Before(until); {
							time.Sleep(time.Second)
						}
						k.probe(a.Status())
					}
					t.Logf("a change of another Service takes up to %v, the oldest is %v old", longest, k.oldest)
					if longest > 10*time.Second || k.kills > 0 {
						t.Errorf("a change of another Service takes up to %v; %d kills", longest, k.kills)
					}
				})
			})
		}
	}
}

// TestAggregator_SeveralHangsDoNotDelayChanges: while more and more Services hang, two at a time, each change of
// another Service lands within 10 s.
func TestAggregator_SeveralHangsDoNotDelayChanges(t *testing.T) {
	for _, outcome := range []dataplane.Outcome{dataplane.Busy, dataplane.Unknown} {
		synctest.Test(t, func(t *testing.T) {
			a := stumbling(t, hanging{outcome: outcome, takes: time.Hour}.stumbler())
			a.submit("a", 1, 1, "0")
			time.Sleep(2 * time.Second)
			var longest time.Duration
			for round := uint64(2); round < 200; round++ {
				if round%10 == 2 {
					a.submit(fmt.Sprintf("bad%02d", round/10), 1, 1, "stumble")
					a.submit(fmt.Sprintf("worse%02d", round/10), 1, 1, "stumble")
				}
				a.submit("a", 1, round, fmt.Sprint("w", round))
				longest = max(longest, a.await(time.Minute, func(kernel string) bool {
					return strings.Contains(kernel, fmt.Sprintf("a/0=w%d ", round))
				}))
				time.Sleep(time.Duration(round*7%60) * time.Second)
			}
			t.Logf("%v: a change of another Service takes up to %v", outcome, longest)
			if longest > 10*time.Second {
				t.Errorf("%v: a change of another Service takes up to %v", outcome, longest)
			}
			is(t, "quarantined", len(quarantined(a)), 40)
		})
	}
}

// TestAggregator_TwoServicesHangInSuccession: when two Services hang one after the other, a change of a third Service
// in the write with the second one does not wait for further tries of that write.
func TestAggregator_TwoServicesHangInSuccession(t *testing.T) {
	for _, outcome := range []dataplane.Outcome{dataplane.Busy, dataplane.Unknown} {
		synctest.Test(t, func(t *testing.T) {
			a := stumbling(t, hanging{outcome: outcome, takes: time.Hour}.stumbler())
			a.submit("a", 1, 1, "0")
			time.Sleep(2 * time.Second)
			a.submit("bad", 1, 1, "stumble")
			time.Sleep(time.Second) // it is being written
			a.submit("a", 1, 2, "w")
			a.submit("worse", 1, 1, "stumble")
			took := a.await(time.Minute, func(kernel string) bool { return strings.Contains(kernel, "a/0=w ") })
			if took > 9*time.Second {
				t.Errorf("%v: the change takes %v", outcome, took)
			}
		})
	}
}

// TestAggregator_SlowFailuresKillNoProcess: the kubelet does not kill the process when the writes of a Service fail
// slowly and cannot be interrupted.
func TestAggregator_SlowFailuresKillNoProcess(t *testing.T) {
	for _, takes := range []time.Duration{15 * time.Second, 20 * time.Second, 40 * time.Second, time.Minute} {
		for _, outcome := range []dataplane.Outcome{dataplane.Busy, dataplane.Unknown} {
			t.Run(fmt.Sprint(outcome, takes), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := stumbling(t, hanging{outcome: outcome, takes: takes, deaf: true}.stumbler())
					a.submit("bad", 1, 1, "served")
					time.Sleep(2 * time.Second)
					var k kubelet
					a.submit("bad", 1, 2, "stumble")
					for round := uint64(1); round < 360; round++ {
						a.submit("good00", 1, round, fmt.Sprint("w", round))
						time.Sleep(10 * time.Second)
						k.probe(a.Status())
					}
					is(t, "quarantined", quarantined(a), "[bad]")
					if k.kills > 0 {
						t.Errorf("%d kills; the oldest change was %v old", k.kills, k.oldest)
					}
				})
			})
		}
	}
}

// TestAggregator_LongFirstWriteNotCutShort: the long first write of a node with many Services is not interrupted, and
// /livez is excused for longer than the write takes.
func TestAggregator_LongFirstWriteNotCutShort(t *testing.T) {
	for many, took := range map[int]time.Duration{1000: 5400 * ms, 10_000: 9900 * ms, 60_000: 29 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := &stumbler{outcome: dataplane.Busy, hangs: true, needs: func(*dataplane.Batch) time.Duration { return took }}
			s.model = &model{}
			a := openWriter(t, s.model, contract(s), Config{})
			a.Submit(scaffold())
			keys := []service.Key{service.Node}
			for i := range many {
				name := fmt.Sprintf("s%05d", i)
				keys = append(keys, keyOf(name))
				a.submit(name, 1, 1, "1")
			}
			a.Prime(keys)
			time.Sleep(took / 2)
			if status := a.Status(); !status.Excused.After(time.Now().Add(took / 2)) {
				t.Errorf("excused until %v, want longer than the write takes", status.Excused)
			}
			time.Sleep(took/2 + time.Second)
			is(t, "writes", a.written(), 1)
			is(t, "what is pending", a.Status().OldestPending.IsZero(), true)
		})
	}
}

// TestAggregator_HangDelaysFirstWriteBriefly: when one of many Services hangs at startup, the others are served within
// 20 s. They do not wait for the time limit of a first write.
func TestAggregator_HangDelaysFirstWriteBriefly(t *testing.T) {
	for many, most := range map[int]time.Duration{500: 15 * time.Second, 12_000: 20 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := hanging{outcome: dataplane.Busy, takes: time.Hour}.stumbler()
			s.model = &model{}
			a := openWriter(t, s.model, contract(s), Config{})
			a.Submit(scaffold())
			a.submit("bad", 1, 1, "stumble")
			keys := []service.Key{service.Node, keyOf("bad")}
			for i := range many {
				name := fmt.Sprintf("s%05d", i)
				keys = append(keys, keyOf(name))
				a.submit(name, 1, 1, "1")
			}
			a.Prime(keys)
			time.Sleep(most)
			if served := strings.Count(a.text(), "=1"); served < many {
				t.Errorf("%d of %d others are served after %v", served, many, most)
			}
		})
	}
}

// TestAggregator_WritesLandAfterLockReleased: when another process holds a lock that every write needs, at startup or
// later, all writes land within 20 s after its release.
func TestAggregator_WritesLandAfterLockReleased(t *testing.T) {
	for _, held := range []time.Duration{8 * time.Second, 30 * time.Second, 3 * time.Minute} {
		for _, later := range []time.Duration{0, time.Minute} {
			t.Run(fmt.Sprint(held, later), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var free time.Time
					s := &stumbler{outcome: dataplane.Busy, hangs: true, needs: func(*dataplane.Batch) time.Duration {
						return 100*ms + max(0, time.Until(free))
					}}
					if later == 0 {
						free = time.Now().Add(held)
					}
					a := stumbling(t, s)
					time.Sleep(later)
					a.questions <- func() {
						if later > 0 {
							free = time.Now().Add(held)
						}
						for i := range 99 {
							a.submit(fmt.Sprintf("good%02d", i), 1, 1, "1")
						}
					}
					began := time.Now()
					a.await(time.Hour, func(kernel string) bool { return strings.Count(kernel, "good") == 99 })
					if late := time.Since(laterOf(began, free)); late > 20*time.Second {
						t.Errorf("everything lands %v after the lock is given back", late)
					}
					is(t, "quarantined", quarantined(a), "[]")
				})
			})
		}
	}
}

// TestAggregator_RestartTriesUnlandedLast: after a restart, a Service whose writes hung in the previous process is
// tried last and alone. The other Services are written first, and the Service keeps its rules and lands once it can.
func TestAggregator_RestartTriesUnlandedLast(t *testing.T) {
	for _, changed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := hanging{outcome: dataplane.Busy, takes: time.Hour}.stumbler()
			s.model = &model{objects: map[dataplane.ID]string{{Name: "base"}: "", {Name: "bad/0"}: "served", {Name: "good00/0"}: "0", {Name: "same/0"}: "same"}}
			a := openWriter(t, s.model, owned(contract(s)), Config{Unlanded: func() []service.Key {
				return []service.Key{keyOf("bad"), keyOf("gone"), keyOf("same")}
			}})
			a.Submit(scaffold())
			a.submit("bad", 1, 1, "stumble")
			a.submit("same", 1, 1, "same")
			for i := range 20 {
				a.submit(fmt.Sprintf("good%02d", i), 1, 1, "1")
			}
			a.Prime(nil)
			took := a.await(time.Hour, func(kernel string) bool { return strings.Count(kernel, "=1") == 20 })
			if took > time.Second {
				t.Errorf("the others are served after %v", took)
			}
			time.Sleep(time.Minute)
			is(t, "quarantined", quarantined(a), "[bad]")
			is(t, "rules of the Service", strings.Contains(a.text(), "bad/0=served"), true)
			if changed {
				a.submit("bad", 1, 2, "fine")
				a.submit("same", 1, 2, "fine")
				a.await(10*time.Minute, func(kernel string) bool { return strings.Count(kernel, "=fine") == 2 })
				time.Sleep(time.Second)
				is(t, "quarantined once it lands", quarantined(a), "[]")
			}
		})
	}
}

// TestAggregator_FirstChangeAfterFormerHang: the first change of a Service takes at most 10 s in a process whose only
// other pending write hangs, as in the previous process. This process does not know yet how long writes take.
func TestAggregator_FirstChangeAfterFormerHang(t *testing.T) {
	for after := time.Second; after < 30*time.Minute; after += 9 * time.Second {
		synctest.Test(t, func(t *testing.T) {
			s := hanging{outcome: dataplane.Busy, takes: time.Hour}.stumbler()
			s.model = &model{objects: map[dataplane.ID]string{{Name: "base"}: "", {Name: "bad/0"}: "served", {Name: "good/0"}: "0"}}
			a := openWriter(t, s.model, owned(contract(s)), Config{Unlanded: func() []service.Key { return []service.Key{keyOf("bad")} }})
			a.Submit(scaffold())
			a.submit("bad", 1, 1, "stumble")
			a.submit("good", 1, 1, "0")
			a.Prime(nil)
			time.Sleep(after)
			a.submit("good", 1, 2, "1")
			if took := a.await(time.Hour, func(kernel string) bool { return strings.Contains(kernel, "good/0=1") }); took > 10*time.Second {
				t.Errorf("after %v: a change takes %v", after, took)
			}
		})
	}
}

// TestAggregator_SlowServiceKeepsOthersLimits: slow writes of one Service do not raise the usual write time, from which
// the limits follow; a slow write of two Services does.
func TestAggregator_SlowServiceKeepsOthersLimits(t *testing.T) {
	m := &machine{}
	wrote := func(names ...string) {
		batch := &dataplane.Batch{}
		for _, name := range names {
			batch.Changes = append(batch.Changes, dataplane.Change{Owner: service.Key{Namespace: "ns", Name: name}})
		}
		m.learn(&result{job: job{batch: batch}, receipt: dataplane.Receipt{Outcome: dataplane.Landed, Took: 3 * time.Second}})
	}
	for range 3 {
		wrote("slow")
	}
	if m.tries.usual > tryMin {
		t.Errorf("writes usually take %v", m.tries.usual)
	}
	if wrote("slow", "other"); m.tries.usual != 3*time.Second {
		t.Errorf("a write of two Services takes 3s, and usually %v", m.tries.usual)
	}
}
