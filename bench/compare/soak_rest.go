package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// restMax is longer than anything lasts by itself that is no work: a connection of net/http that
// nobody uses (90 s), the time that an optional resource is left alone which the API server refused
// (a minute), and the kernel's memory of a connection that has ended (two minutes).
const restMax = 130 * time.Second

// rest is how long the node rests before its samples at rest.
func (s *soak) rest() time.Duration { return min(restMax, s.duration/20) }

func (s *soak) restsLong() bool { return s.rest() == restMax }

// quiet takes a sample at rest.
func (s *soak) quiet(ctx context.Context) error {
	if !sleepUntil(ctx, time.Now().Add(s.rest())) {
		return ctx.Err()
	}
	if err := s.idle(ctx); err != nil {
		return err
	}
	// Two collections: what a pool held survives the first.
	var heap float64
	for range 2 {
		var err error
		if heap, err = s.metrics.collect(ctx); err != nil {
			return err
		}
	}
	sample, err := s.sample(ctx, true)
	sample.HeapMiB = heap / (1 << 20)
	s.out.Quiet = append(s.out.Quiet, sample)
	progress("  at rest: %+v", sample)
	if err != nil || s.json == "" {
		return err
	}
	// Writing a profile makes garbage, so it comes last.
	return s.keepProfiles(ctx, fmt.Sprintf("%s.rest-%d", s.json, len(s.out.Quiet)))
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
