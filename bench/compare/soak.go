// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

const (
	// soakRate is the number of endpoints replaced per second.
	soakRate = 100
	// soakUnderway is how many changes wait for the API server's answer at most. A machine that is
	// too slow for the rate then gets fewer.
	soakUnderway = 200
	// restartEvery and configureEvery are how often the API server starts again, and how often the
	// configuration changes. Short runs have one restart and six changes.
	restartEvery, configureEvery = 5 * time.Minute, time.Minute
	sampleEvery                  = 10 * time.Second
	// soakStep is what the clients' exchanges count for.
	soakStep = "soak"
)

// soak is one long run of Sluice alone. What happened so far is printed at the end.
type soak struct {
	*run
	began    time.Time
	config   string
	followed followed

	mu sync.Mutex // guards what follows
	// restarts are those of the API server, handOvers the changes of the configuration.
	restarts, handOvers int
	made                int
	loaded              time.Duration // how long changes were made
	samples             []sample      // under load
	rests               []sample      // at rest: after the first minute, and at the end
	latency             []string
}

// soakAll runs Sluice for the duration, and prints what stayed as it was and what did not.
func soakAll(ctx context.Context, o options) error {
	origin, err := o.origin(ctx)
	if err != nil {
		return err
	}
	s := &soak{run: &run{options: o, program: sluice, out: &comparison{}}}
	return rig.InFolder("soak", func(dir string) error {
		s.dir = dir
		failed := s.all(ctx)
		exchanged := connections{}
		if s.traffic != nil {
			exchanged = s.traffic.of(soakStep)
		}
		failed = errors.Join(failed, s.close())
		fmt.Printf("%s\n\n%d Services, %.0f s, %.1f changes/s, %d restarts of the API server, %d hand-overs\n", origin,
			o.services, s.loaded.Seconds(), float64(s.made)/max(1, s.loaded.Seconds()), s.restarts, s.handOvers)
		for _, l := range s.latency {
			fmt.Println(l)
		}
		fmt.Println()
		checks := s.judge(exchanged)
		if slices.ContainsFunc(checks, func(c check) bool { return !c.ok }) {
			failed = errors.Join(failed, errGrown)
		}
		return errors.Join(failed, table(checks).Print(os.Stdout))
	})
}

// lost says which exchange failed, and how.
func (s *soak) lost(e netnstest.Exchange) {
	rig.Progress("  lost: %s, session %t, after %s: %v, answer %+v", s.traffic.targets[e.Target], e.Session, rig.Round(e.Ended.Sub(e.Began)), e.Err, e.Answer)
}

// all goes from the cold start to the last quiet moment.
func (s *soak) all(ctx context.Context) error {
	if err := s.prepare(ctx); err != nil {
		return err
	}
	s.config = filepath.Join(s.dir, "config.yaml")
	if err := s.configure(0); err != nil {
		return err
	}
	s.proxy.flags = []string{"proxy", "--config", s.config, "--hostname-override", nodeName}
	if err := s.cold(ctx); err != nil {
		return err
	}
	s.traffic.during(soakStep)
	s.traffic.mu.Lock()
	s.traffic.tell = s.lost
	s.traffic.mu.Unlock()
	s.began = time.Now()
	// The first minute has no fault but one change of the configuration.
	first := min(time.Minute, s.soak/4)
	if err := s.load(ctx, 0, first); err != nil {
		return err
	}
	if err := s.load(ctx, first, s.soak); err != nil {
		return err
	}
	return s.proxy.Alive()
}

// load makes changes and faults from one moment of the run to another, and ends with a sample at rest.
func (s *soak) load(ctx context.Context, from, to time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.followed = followed{}
	// The clock of the plan stands still while the node rests.
	began := time.Now()
	zero := began.Add(-from)
	configureEvery := min(configureEvery, s.soak/6)
	var group sync.WaitGroup
	for _, activity := range []struct {
		every, phase time.Duration
		do           func(context.Context, int) error
	}{
		{min(restartEvery, s.soak*2/3), 0, s.restartAPI},
		{configureEvery, configureEvery / 2, s.reconfigure},
		{sampleEvery, 0, s.sampleOne},
	} {
		group.Go(func() {
			for n := 1; ; n++ {
				at := time.Duration(n)*activity.every - activity.phase
				if at < from {
					continue
				}
				if at >= to || !rig.Sleep(ctx, time.Until(zero.Add(at))) {
					return
				}
				if err := activity.do(ctx, n); err != nil {
					cancel(err)
				}
			}
		})
	}
	s.change(ctx, zero.Add(to))
	group.Wait()
	f := &s.followed
	f.underway.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if f.failures > 0 {
		rig.Progress("  the API server did not take %d changes; the last: %v", f.failures, f.failed)
	}
	s.loaded += time.Since(began)
	text := fmt.Sprintf("%s, %s to %s:", toAnswer, rig.Round(from), rig.Round(to))
	for _, percent := range []int{50, 99} {
		if seconds, ok := percentile(f.took, f.beyond, percent); ok {
			text += fmt.Sprintf(" p%d %.0f ms", percent, 1000*seconds)
		}
	}
	s.latency = append(s.latency, text)
	return s.quiet(ctx)
}

// change replaces endpoints until a moment. What the API server's restarts have cost is made up for,
// at no more than twice the rate.
func (s *soak) change(ctx context.Context, until time.Time) {
	const interval = time.Second / soakRate
	busy := &sync.Map{}
	due, last := time.Now(), time.Time{}
	for ; time.Now().Before(until); s.made++ {
		at := due
		if soonest := last.Add(interval / 2); at.Before(soonest) {
			at = soonest
		}
		if !rig.Sleep(ctx, time.Until(at)) {
			return
		}
		s.api.await()
		if !s.followed.await(ctx, soakUnderway) {
			return
		}
		last, due = time.Now(), due.Add(interval)
		s.changeOne(ctx, &s.followed, busy, s.made%(soakRate/measuredPerSecond) == 0)
	}
}

// sampleOne takes a sample under load, and says once a minute how far the run is.
func (s *soak) sampleOne(ctx context.Context, n int) error {
	v, err := s.sample(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.samples = append(s.samples, v); n%6 == 3 {
		c := s.traffic.of(soakStep)
		rig.Progress("  %s of %s: %d restarts, %d hand-overs, %d exchanges, %d lost; %.0f MiB resident, %d goroutines, %d descriptors",
			rig.Round(time.Since(s.began)), rig.Round(s.soak), s.restarts, s.handOvers, c.attempted, c.lost, v.residentMiB, v.goroutines, v.descriptors)
	}
	return s.proxy.Alive()
}
