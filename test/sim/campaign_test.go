// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"
)

// everyday is how many scenarios are played unless SLUICE_SIM_SEEDS says how many; a campaign begins with the seed
// after these, so that CI plays none twice. varied is how many see everything happen.
const everyday, varied = 5, 40

// TestSimulation plays scenarios from seeds, and prints how often each event happened. SLUICE_SIM_FROM is the first
// seed. SLUICE_SIM_SEED=n plays only that seed and prints every event.
func TestSimulation(t *testing.T) {
	if seed, ok := number(t, "SLUICE_SIM_SEED"); ok {
		simulate(t, generate(seed), func(line string) { fmt.Println(line) })
		return
	}
	from := uint64(everyday + 1)
	count, ok := number(t, "SLUICE_SIM_SEEDS")
	if !ok {
		from, count = 1, everyday
	}
	if first, ok := number(t, "SLUICE_SIM_FROM"); ok {
		from = first
	}
	c := newCampaign(t, from, count)
	c.run(t)
	if c.done.Load() == count && count >= varied {
		checkVariety(t, c.seen)
	}
}

// TestSimulationOfToday plays scenarios that differ each day, if SLUICE_SIM_FRESH contains their number.
func TestSimulationOfToday(t *testing.T) {
	count, _ := number(t, "SLUICE_SIM_FRESH")
	day, err := strconv.ParseUint(time.Now().UTC().Format("20060102"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	const perDay = 1_000_000
	newCampaign(t, day*perDay, count).run(t)
}

// campaign is many scenarios.
type campaign struct {
	from, count uint64
	// began is when it did; no seed is begun after end, unless that is zero.
	began, end time.Time
	// next counts the seeds that were begun, done those that have ended.
	next, done, failed atomic.Uint64

	mu   sync.Mutex
	seen tally
	// slowest is the seed that took longest, and how long.
	slowest uint64
	longest time.Duration
}

// newCampaign makes a campaign. SLUICE_SIM_SECONDS bounds its time.
func newCampaign(t *testing.T, from, count uint64) *campaign {
	c := &campaign{from: from, count: count, began: time.Now(), seen: tally{}}
	if seconds, ok := number(t, "SLUICE_SIM_SECONDS"); ok {
		c.end = c.began.Add(time.Duration(seconds) * time.Second)
	}
	return c
}

// run spreads the seeds over the processors.
func (c *campaign) run(t *testing.T) {
	if c.count == 0 {
		return
	}
	fmt.Printf("simulation: seeds %d to %d, %d at a time\n", c.from, c.from+c.count-1, runtime.GOMAXPROCS(0))
	stop := make(chan struct{})
	var progress sync.WaitGroup
	progress.Go(func() { c.report(stop) })
	t.Run("seeds", func(t *testing.T) {
		for worker := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprintf("worker=%d", worker), func(t *testing.T) {
				t.Parallel()
				for n := c.next.Add(1); n <= c.count && (c.end.IsZero() || time.Now().Before(c.end)); n = c.next.Add(1) {
					c.play(t, c.from+n-1)
				}
			})
		}
	})
	close(stop)
	progress.Wait()
	fmt.Print(c.table())
}

func (c *campaign) play(t *testing.T, seed uint64) {
	began := time.Now()
	seen, ok := simulate(t, generate(seed), nil)
	took := time.Since(began)
	if !ok {
		c.failed.Add(1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for what, times := range seen {
		c.seen[what] += times
	}
	if took > c.longest {
		c.slowest, c.longest = seed, took
	}
	c.done.Add(1)
}

// report prints how far the campaign is.
func (c *campaign) report(stop <-chan struct{}) {
	every := time.NewTicker(15 * time.Second)
	defer every.Stop()
	for {
		select {
		case <-stop:
			return
		case <-every.C:
			fmt.Printf("%s: %d of %d seeds, %d failed\n", time.Since(c.began).Round(time.Second), c.done.Load(), c.count, c.failed.Load())
		}
	}
}

// table is what happened how often.
func (c *campaign) table() string {
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	took := time.Since(c.began)
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, value any) { fmt.Fprintf(w, "%v\t%v\t\n", name, value) }
	row("seeds", c.done.Load())
	row("failed", c.failed.Load())
	row("seconds", fmt.Sprintf("%.0f", took.Seconds()))
	row("seconds per seed", fmt.Sprintf("%.3f", took.Seconds()/float64(max(c.done.Load(), 1))))
	row(fmt.Sprintf("the slowest, %d", c.slowest), fmt.Sprintf("%.3f", c.longest.Seconds()))
	row("MiB of heap left", memory.HeapAlloc>>20)
	row("goroutines left", runtime.NumGoroutine())
	for _, what := range slices.SortedFunc(maps.Keys(c.seen), cmp.Compare) {
		row(what, c.seen[what])
	}
	if err := w.Flush(); err != nil {
		return err.Error()
	}
	return b.String()
}

// checkVariety checks that everything a simulation is for has happened: one in which
// nothing goes wrong would prove little.
func checkVariety(t *testing.T, seen tally) {
	for _, what := range []string{
		"supervisor.Failed", "supervisor.Stuck", "supervisor.Returned", "supervisor.Parked", "supervisor.Unparked",
		"aggregator.Quarantined", "aggregator.Freed", "aggregator.NodeAtFault", "aggregator.AuditDone",
		"write landed", "write busy", "write unknown", "write rejected", "write unsupported", "write divided",
		"packet untouched", "packet delivered", "packet rejected", "packet dropped",
		"kill at a request", "kill between requests", "end beside a held Service", "end before the first write",
		"rival acts",
	} {
		if seen[what] == 0 {
			t.Errorf("never seen: %s", what)
		}
	}
	for _, w := range slices.Concat(apiEvents, faultEvents) {
		if seen["event "+string(w.do)] == 0 {
			t.Errorf("never happened: %s", w.do)
		}
	}
	if seen["event "+string(hangService)] <= 2*seen["event "+string(hangAlongside)] {
		t.Errorf("never happened: %s among other faults", hangService)
	}
}

func number(t *testing.T, name string) (uint64, bool) {
	text := os.Getenv(name)
	if text == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n, true
}

// run plays a scenario in a bubble of its own. The bubble itself ends the test when a
// goroutine is left. Log may be nil.
func run(t *testing.T, s scenario, log func(string)) (seen tally, err error) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { seen, err = play(s, log) })
	return seen, err
}

// Bounds of what a failure may cost; SLUICE_SIM_SHRINK overrides the tries.
const (
	shrinkTries = 300
	shrinkTime  = 2 * time.Minute
)

// simulate plays a scenario; when that fails, it looks for a shorter one.
func simulate(t *testing.T, s scenario, log func(string)) (seen tally, ok bool) {
	t.Helper()
	seen, err := run(t, s, log)
	if err == nil {
		return seen, true
	}
	fmt.Printf("seed %d fails; looking for a shorter list of events: %.1500v\n", s.seed, err)
	tries, ok := number(t, "SLUICE_SIM_SHRINK")
	if !ok {
		tries = shrinkTries
	}
	shortest, began := s, time.Now()
	shortest.events = shrink(s.events, func(events []event) bool {
		if time.Since(began) > shrinkTime {
			return false
		}
		if _, e := run(t, scenario{s.seed, events}, nil); e != nil {
			err = e
			return true
		}
		return false
	}, int(tries))
	t.Errorf("seed %d: %v\n\nReplay with SLUICE_SIM_SEED=%d, or add this to the regressions:\n\nscenario{%d, %s}",
		s.seed, beginning(err), s.seed, s.seed, literal(shortest.events))
	return seen, false
}

// beginning returns the first lines of an error that has very many.
func beginning(err error) string {
	const most = 6000
	text := err.Error()
	if len(text) > most {
		return text[:most] + " …"
	}
	return text
}
