// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// sample is what the process has at one moment. What the kernel has for it, and the heap after a garbage collection, are
// known at rest.
type sample struct {
	seconds, residentMiB             float64
	goroutines, descriptors, tracked int
	heapMiB                          float64
	chains, rules, sets, elements    int
}

// get asks the proxy's server. While a hand-over goes on, the server may be between two proxies; then it is asked again.
func (s *soak) get(ctx context.Context, path string) (text []byte, err error) {
	const tries, pause = 50, 200 * time.Millisecond
	for range tries {
		if text, err = rig.Get(ctx, s.network.node, "http://127.0.0.1:10249"+path); err == nil || !rig.Sleep(ctx, pause) {
			break
		}
	}
	return text, err
}

// collect makes the process collect garbage, and returns the MiB of its heap right after. The
// metric go_memstats_heap_alloc_bytes also counts the garbage of the metrics server's answer.
func (s *soak) collect(ctx context.Context) (float64, error) {
	text, err := s.get(ctx, "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	found := heapAlloc.FindSubmatch(text)
	if found == nil {
		return 0, errors.New("a profile of the heap does not say HeapAlloc")
	}
	bytes, err := strconv.ParseFloat(string(found[1]), 64)
	return bytes / (1 << 20), err
}

var (
	heapAlloc = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)
	// profiled is a group of goroutines in a profile: how many, and the first frame of their stack.
	profiled = regexp.MustCompile(`(?m)^(\d+) @.*\n#\t`)
)

// countGoroutines counts those of the program. The runtime's own have no frames in a profile: it starts one
// for clean-ups when it first has enough of them, which may be late.
func (s *soak) countGoroutines(ctx context.Context) (count int, err error) {
	text, err := s.get(ctx, "/debug/pprof/goroutine?debug=1")
	if err != nil {
		return 0, err
	}
	for _, group := range profiled.FindAllSubmatch(text, -1) {
		n, _ := strconv.Atoi(string(group[1])) // digits
		count += n
	}
	if count == 0 {
		return 0, errors.New("the profile of goroutines is empty")
	}
	return count, nil
}

// sample describes the process now.
func (s *soak) sample(ctx context.Context) (v sample, err error) {
	pid := s.proxy.Process().PID()
	v.seconds = time.Since(s.began).Seconds()
	if v.goroutines, err = s.countGoroutines(ctx); err != nil {
		return v, err
	}
	if v.residentMiB = rig.MiB(pid, rig.Resident); v.residentMiB == 0 {
		return v, s.proxy.Alive()
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return v, err
	}
	v.descriptors = len(open)
	err = s.network.node.Do(func() error {
		text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
		if err == nil {
			v.tracked, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err
	})
	return v, err
}

// countObjects counts everything in nf_tables of this thread's network namespace, with nft rather than
// with the client that is under test.
func (v *sample) countObjects() error {
	printed, err := exec.Command("nft", "-j", "list", "ruleset").Output()
	if err != nil {
		return fmt.Errorf("nft -j list ruleset: %w", err)
	}
	type set struct {
		Elements []json.RawMessage `json:"elem"`
	}
	var listing struct {
		Objects []struct {
			Chain, Rule json.RawMessage
			Set, Map    *set
		} `json:"nftables"`
	}
	if err := json.Unmarshal(printed, &listing); err != nil {
		return fmt.Errorf("nft -j list ruleset: %w", err)
	}
	for _, o := range listing.Objects {
		switch {
		case o.Chain != nil:
			v.chains++
		case o.Rule != nil:
			v.rules++
		}
		for _, s := range []*set{o.Set, o.Map} {
			if s != nil {
				v.sets++
				v.elements += len(s.Elements)
			}
		}
	}
	if v.chains == 0 {
		return errors.New("nft -j list ruleset: there are no chains")
	}
	return nil
}

// restMax is longer than all state that outlives its use: an idle connection of net/http (90 s), the pause
// after the API server rejected an optional resource (a minute), and the conntrack entry of a closed
// connection (two minutes).
const restMax = 130 * time.Second

// rest is how long the node rests before its samples at rest.
func (s *soak) rest() time.Duration { return min(restMax, s.soak/20) }

func (s *soak) restsLong() bool { return s.rest() == restMax }

// quiet adds a sample at rest. A short run does not rest as long as some connections last by themselves. Where it has
// more than before, it rests again: what leaks stays.
func (s *soak) quiet(ctx context.Context) error {
	var v sample
	for began := time.Now(); ; {
		if !rig.Sleep(ctx, s.rest()) {
			return ctx.Err()
		}
		var err error
		if v, err = s.sampleAtRest(ctx); err != nil {
			return err
		}
		rig.Progress("  at rest: %+v", v)
		if s.restsLong() || len(s.rests) == 0 || !s.grown(v) || time.Since(began) > restMax {
			break
		}
	}
	s.rests = append(s.rests, v)
	// Writing a profile makes garbage, so it comes last.
	return s.keepProfiles(ctx, filepath.Join(s.dir, fmt.Sprintf("rest-%d", len(s.rests))))
}

// sampleAtRest takes a sample after garbage has been collected. Of goroutines and descriptors it takes the least: the
// server may not have closed the connection of the request before.
func (s *soak) sampleAtRest(ctx context.Context) (v sample, err error) {
	const tries, pause = 5, 200 * time.Millisecond
	if err := s.idle(ctx); err != nil {
		return v, err
	}
	// Two collections: what a pool held survives the first.
	heap := 0.0
	for range 2 {
		if heap, err = s.collect(ctx); err != nil {
			return v, err
		}
	}
	if v, err = s.sample(ctx); err != nil {
		return v, err
	}
	for range tries {
		rig.Sleep(ctx, pause)
		again, err := s.sample(ctx)
		if err != nil {
			return v, err
		}
		v.goroutines, v.descriptors = min(v.goroutines, again.goroutines), min(v.descriptors, again.descriptors)
	}
	v.heapMiB = heap
	return v, s.network.node.Do(v.countObjects)
}

// keepProfiles writes down what a difference between two moments at rest may be due to. The files stay if the run fails.
func (s *soak) keepProfiles(ctx context.Context, prefix string) error {
	for _, name := range []string{"heap", "goroutine?debug=1"} {
		text, err := s.get(ctx, "/debug/pprof/"+name)
		if err == nil {
			err = os.WriteFile(prefix+"-"+strings.TrimSuffix(name, "?debug=1"), text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	var open strings.Builder
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", s.proxy.Process().PID()))
	for _, link := range links {
		to, _ := os.Readlink(link)
		fmt.Fprintln(&open, filepath.Base(link), to)
	}
	return os.WriteFile(prefix+"-descriptors", []byte(open.String()), 0o644)
}
