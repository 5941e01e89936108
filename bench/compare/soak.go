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

	"github.com/sluice-proxy/sluice/bench/result"
	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/internal/host/netns"
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
	sampleEvery, countEvery      = 10 * time.Second, time.Minute
)

// soak is one long run of Sluice alone.
type soak struct {
	*run
	machine  rig.Machine
	duration time.Duration
	began    time.Time
	config   string
	metrics  *metrics
	out      *result.Soak

	followed followed
	mu       sync.Mutex // guards what the goroutines below add to out
}

// soakAll runs Sluice for the duration, prints what stayed and what did not, and stores it.
func soakAll(ctx context.Context, o options) (err error) {
	machine, comparison, err := describe(ctx, o)
	if err != nil {
		return err
	}
	s := &soak{
		machine:  machine,
		run:      &run{options: o, program: result.Sluice, round: 1, out: comparison},
		duration: o.soak, out: &result.Soak{Services: o.N, Endpoints: comparison.Endpoints, Mix: comparison.Mix},
	}
	failed := rig.InFolder("soak", func(dir string) error {
		s.dir = dir
		failed := s.all(ctx)
		if s.traffic != nil {
			c := s.traffic.of(soakStep)
			s.out.Attempted, s.out.Lost = c.attempted, c.lost
		}
		return errors.Join(failed, s.close())
	})
	if failed != nil {
		s.out.Incomplete = failed.Error()
	}
	s.judge()
	failed = errors.Join(failed, s.store())
	if err := s.out.Print(os.Stdout); err != nil {
		return errors.Join(failed, err)
	}
	if slices.ContainsFunc(s.out.Checks, func(c result.Check) bool { return !c.OK }) {
		return errors.Join(failed, errGrown)
	}
	return failed
}

// store writes what is known, at the end and now and then before it.
func (s *soak) store() error {
	if s.json == "" {
		return nil
	}
	return result.Store(s.json, "soak", s.soakCommand(), s.machine, s.out)
}

// lost says which exchange failed, and how.
func (s *soak) lost(e netns.Exchange) {
	rig.Progress("  lost: %s, session %t, after %s: %v, answer %+v", s.traffic.targets[e.Target], e.Session, rig.Round(e.Ended.Sub(e.Began)), e.Err, e.Answer)
}

// soakCommand is what to type to repeat this.
func (o options) soakCommand() string {
	return fmt.Sprintf("make soak DURATION=%s N=%d", rig.Round(o.soak), o.N)
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
	s.metrics = &metrics{s.network.node}
	if err := s.cold(ctx); err != nil {
		return err
	}
	s.traffic.during(soakStep)
	s.traffic.mu.Lock()
	s.traffic.tell = s.lost
	s.traffic.mu.Unlock()
	s.began = time.Now()
	first := min(time.Minute, s.duration/4)
	// The first minute has no fault but one change of the configuration.
	if err := s.load(ctx, 0, first); err != nil {
		return err
	}
	if err := s.load(ctx, first, s.duration); err != nil {
		return err
	}
	return s.proxy.alive()
}

// load makes changes and faults from one moment of the run to another, and ends with a sample at rest.
func (s *soak) load(ctx context.Context, from, to time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.followed = followed{}
	// The clock of the plan stands still while the node rests.
	zero := time.Now().Add(-from)
	var group sync.WaitGroup
	for _, activity := range []struct {
		every, phase time.Duration
		do           func(context.Context, int) error
	}{
		{min(restartEvery, s.duration*2/3), 0, s.restartAPI},
		{min(configureEvery, s.duration/6), min(configureEvery, s.duration/6) / 2, s.reconfigure},
		{sampleEvery, 0, s.sampleOne},
		{countEvery, countEvery / 2, s.progressOne},
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
	made, began := s.change(ctx, zero.Add(to)), zero.Add(from)
	group.Wait()
	s.followed.underway.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if s.followed.failures > 0 {
		rig.Progress("  the API server did not take %d changes; the last: %v", s.followed.failures, s.followed.failed)
	}
	s.out.Refused += s.followed.failures
	took := time.Since(began)
	s.out.ChangesPerSecond = (s.out.ChangesPerSecond*s.out.Seconds + float64(made)) / (s.out.Seconds + took.Seconds())
	s.out.Seconds += took.Seconds()
	d := result.Distribute(s.followed.took, s.followed.beyond)
	d.Program, d.What = result.Sluice, "write to answer"
	d.Step = fmt.Sprintf("%s to %s", rig.Round(from), rig.Round(to))
	s.out.Latency = append(s.out.Latency, d)
	return s.quiet(ctx)
}

// change replaces endpoints until a moment. What the API server's restarts have cost is made up for,
// at no more than twice the rate.
func (s *soak) change(ctx context.Context, until time.Time) (made int) {
	const interval = time.Second / soakRate
	busy := &sync.Map{}
	due, last := time.Now(), time.Time{}
	for ; time.Now().Before(until); made++ {
		at := due
		if soonest := last.Add(interval / 2); at.Before(soonest) {
			at = soonest
		}
		if !rig.Sleep(ctx, time.Until(at)) {
			return made
		}
		s.api.await()
		if !s.followed.await(ctx, soakUnderway) {
			return made
		}
		last, due = time.Now(), due.Add(interval)
		s.changeOne(ctx, &s.followed, busy, made%(soakRate/measuredPerSecond) == 0)
	}
	return made
}

// sampleOne takes a sample under load.
func (s *soak) sampleOne(ctx context.Context, n int) error {
	sample, err := s.sample(ctx, n%int(countEvery/sampleEvery) == 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.out.Samples = append(s.out.Samples, sample)
	}
	return err
}

// progressOne says how far the run is.
func (s *soak) progressOne(context.Context, int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, last := s.traffic.of(soakStep), result.Sample{}
	if len(s.out.Samples) > 0 {
		last = s.out.Samples[len(s.out.Samples)-1]
	}
	s.out.Attempted, s.out.Lost = c.attempted, c.lost
	rig.Progress("  %s of %s: %d restarts, %d hand-overs, %d exchanges, %d lost; %.0f MiB resident, heap %.0f MiB, %d goroutines, %d descriptors",
		rig.Round(time.Since(s.began)), rig.Round(s.duration), s.out.Restarts, s.out.HandOvers, c.attempted, c.lost,
		last.ResidentMiB, last.HeapMiB, last.Goroutines, last.Descriptors)
	return errors.Join(s.proxy.alive(), s.store())
}
