// SPDX-License-Identifier: Apache-2.0

// Command reaction measures the whole proxy in one process against the real kernel, from the decoded
// watch event to the commit of its batch. Each measurement runs in a new process and a new network
// namespace; the rules of the host do not change. It needs root.
//
//	react-N       one change at a time among N Services: see kinds
//	churn-N       endpoints of N Services replaced at a high rate for a minute
//	cold-NxE      start of the process to all of N Services with E endpoints programmed, and memory
//	restart-NxE   the same, and again over the existing rules
//
//	go run ./reaction
//	go run ./reaction -only react-1000,cold
//	go run ./reaction -mode iptables -variant legacy
//	go run ./reaction -only react-50000 -cpuprofile cpu.pprof
//
// It prints Markdown tables, after a line that describes their origin. To compare two builds, run the program of each
// checkout.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// options are the flags that affect a measurement.
type options struct {
	mode, variant          string
	endpoints, events      int
	rate, churn            float64
	lasting                time.Duration
	cpuProfile, memProfile string
}

func main() {
	var o options
	flag.StringVar(&o.mode, "mode", nftables, "kernel backend: nftables or iptables")
	flag.StringVar(&o.variant, "variant", "auto", "programs of mode iptables: auto, legacy or nft")
	flag.IntVar(&o.endpoints, "endpoints", 10, "endpoints per Service in react and churn")
	flag.IntVar(&o.events, "events", 300, "changes of each kind in react")
	flag.Float64Var(&o.rate, "rate", 100, "changes per second in react, where the rate is fixed")
	flag.Float64Var(&o.churn, "churn", 1000, "changes per second in churn")
	flag.DurationVar(&o.lasting, "for", time.Minute, "how long churn lasts")
	flag.StringVar(&o.cpuProfile, "cpuprofile", "", "write a CPU profile of the measured phase to this file and the measurement's name")
	flag.StringVar(&o.memProfile, "memprofile", "", "write a heap profile at the end of the measured phase to this file and the measurement's name")
	only := flag.String("only", "", "measurements, or beginnings of their names, separated by commas; empty means all")
	timeout := flag.Duration("timeout", 15*time.Minute, "give up on one measurement after this long")
	inside := flag.String("inside", "", "used by the program itself: run this measurement, in the namespace of this process")
	flag.Parse()

	rig.Main("reaction", func(ctx context.Context) error {
		switch {
		case flag.NArg() > 0:
			return fmt.Errorf("unexpected argument %q", flag.Arg(0))
		case o.mode != nftables && o.mode != iptables:
			return fmt.Errorf("mode %q: must be nftables or iptables", o.mode)
		case o.endpoints < 2 || o.events < 1 || o.rate <= 0 || o.churn < 1 || o.lasting < time.Second:
			return errors.New("-endpoints, -events, -rate, -churn, -for: must be at least 2, 1, more than 0, 1 and 1s")
		case *inside != "":
			return measureInside(ctx, o, *inside, *timeout)
		default:
			return measureAll(ctx, o.mode, *only, *timeout)
		}
	})
}

// measureAll runs the chosen measurements one after the other and prints the results.
func measureAll(ctx context.Context, mode, only string, timeout time.Duration) error {
	chosen, err := choose(mode, only)
	if err != nil {
		return err
	}
	origin, err := rig.Origin(ctx)
	if err != nil {
		return err
	}
	var results []result
	for i, name := range chosen {
		rig.Progress("%s (%d of %d), load average %s", name, i+1, len(chosen), rig.LoadAverage())
		r, err := runChild(ctx, name, timeout)
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	fmt.Println(origin + "\n")
	return show(os.Stdout, results)
}

// garbagePercent is what the daemon sets (internal/daemon/memory.go).
const garbagePercent = 50

// measureInside runs one measurement in this process and prints its result for the parent.
func measureInside(ctx context.Context, o options, name string, timeout time.Duration) error {
	if err := checkInside(); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	m, err := parseMeasurement(name)
	if err != nil {
		return err
	}
	var r result
	if err := m.run(ctx, o, &r); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// What the parent passes to a child besides the flags.
const (
	// outsideVar names the network namespace that must not be touched.
	outsideVar = "REACTION_OUTSIDE"
	// startedVar is when the child was started, in nanoseconds since 1970.
	startedVar = "REACTION_STARTED"
)

// self is this program, wherever its file has gone (proc_pid_exe(5)).
const self = "/proc/self/exe"

// runChild makes one measurement in a new process and a new network namespace, so that it starts without
// rules and with unused memory.
func runChild(ctx context.Context, name string, timeout time.Duration) (r result, err error) {
	namespace, err := netns.New(name)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, namespace.Close()) }()
	outside, err := ownNamespace()
	if err != nil {
		return r, err
	}
	// The child times out by itself; this is for one that cannot.
	ctx, cancel := context.WithTimeout(ctx, timeout+time.Minute)
	defer cancel()
	return runSelf(ctx, name, func(cmd *exec.Cmd) error { return netnstest.Start(namespace, cmd) }, outsideVar+"="+outside)
}

// startInside starts this program again in this namespace, for one cold start.
func startInside(ctx context.Context, name string) (*coldStart, error) {
	r, err := runSelf(ctx, name, (*exec.Cmd).Start)
	return r.Cold, err
}

// runSelf runs this program again with the same flags for one measurement.
func runSelf(ctx context.Context, name string, start func(*exec.Cmd) error, environment ...string) (r result, err error) {
	// The last one of a flag counts.
	cmd := exec.Command(self, append(slices.Clone(os.Args[1:]), "-inside", name)...)
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, os.Stderr
	cmd.Env = append(append(os.Environ(), environment...), fmt.Sprintf("%s=%d", startedVar, time.Now().UnixNano()))
	if err := start(cmd); err != nil {
		return r, err
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	if err := cmd.Wait(); err != nil {
		return r, fmt.Errorf("%s: %w", name, err)
	}
	return r, json.Unmarshal(printed.Bytes(), &r)
}

// ownNamespace names the network namespace of this process.
func ownNamespace() (string, error) { return os.Readlink("/proc/self/ns/net") }

// checkInside refuses to touch the rules of a namespace that was not made for it.
func checkInside() error {
	own, err := ownNamespace()
	if err != nil {
		return err
	}
	if outside := os.Getenv(outsideVar); outside == "" || outside == own {
		return errors.New("-inside is for the program itself: this network namespace was not made for it")
	}
	return nil
}

// processStart is when the parent started this process.
func processStart() (time.Time, error) {
	nanoseconds, err := strconv.ParseInt(os.Getenv(startedVar), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", startedVar, err)
	}
	return time.Unix(0, nanoseconds), nil
}
