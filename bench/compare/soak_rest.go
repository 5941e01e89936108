package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/bench/result"
	"github.com/sluice-proxy/sluice/bench/rig"
)

// restMax is longer than all state that outlives its use: an idle connection of net/http (90 s), the pause
// after the API server rejected an optional resource (a minute), and the conntrack entry of a closed
// connection (two minutes).
const restMax = 130 * time.Second

// rest is how long the node rests before its samples at rest.
func (s *soak) rest() time.Duration { return min(restMax, s.duration/20) }

func (s *soak) restsLong() bool { return s.rest() == restMax }

// quiet adds a sample at rest. A short run does not rest as long as some connections last by themselves. Where it has
// more than before, it rests again: what leaks stays.
func (s *soak) quiet(ctx context.Context) error {
	var sample result.Sample
	for began := time.Now(); ; {
		if !rig.Sleep(ctx, s.rest()) {
			return ctx.Err()
		}
		var err error
		if sample, err = s.sampleAtRest(ctx); err != nil {
			return err
		}
		rig.Progress("  at rest: %+v", sample)
		if s.restsLong() || len(s.out.Quiet) == 0 || !s.grown(sample) || time.Since(began) > restMax {
			break
		}
	}
	s.out.Quiet = append(s.out.Quiet, sample)
	if s.json == "" {
		return nil
	}
	// Writing a profile makes garbage, so it comes last.
	return s.keepProfiles(ctx, fmt.Sprintf("%s.rest-%d", s.json, len(s.out.Quiet)))
}

// sampleAtRest takes a sample after garbage has been collected. Of goroutines and descriptors it takes the least: the
// server may not have closed the connection of the request before.
func (s *soak) sampleAtRest(ctx context.Context) (v result.Sample, err error) {
	const tries, pause = 5, 200 * time.Millisecond
	if err := s.idle(ctx); err != nil {
		return v, err
	}
	// Two collections: what a pool held survives the first.
	var heap float64
	for range 2 {
		if heap, err = s.metrics.collect(ctx); err != nil {
			return v, err
		}
	}
	if v, err = s.sample(ctx, true); err != nil {
		return v, err
	}
	v.HeapMiB = heap / (1 << 20)
	for range tries {
		rig.Sleep(ctx, pause)
		again, err := s.sample(ctx, false)
		if err != nil {
			return v, err
		}
		v.Goroutines, v.Descriptors = min(v.Goroutines, again.Goroutines), min(v.Descriptors, again.Descriptors)
	}
	return v, nil
}

// keepProfiles writes down what a difference between two moments at rest may be due to.
func (s *soak) keepProfiles(ctx context.Context, prefix string) error {
	for _, name := range []string{"heap", "goroutine?debug=1"} {
		text, err := s.metrics.get(ctx, "/debug/pprof/"+name)
		if err == nil {
			err = os.WriteFile(prefix+"-"+strings.TrimSuffix(name, "?debug=1"), text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	var open strings.Builder
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", s.proxy.process.PID()))
	for _, link := range links {
		to, _ := os.Readlink(link)
		fmt.Fprintln(&open, filepath.Base(link), to)
	}
	return os.WriteFile(prefix+"-descriptors", []byte(open.String()), 0o644)
}
