// Command forward compares userspace mode, which copies, with nftables mode, which translates: the cost
// of a new connection and of a stream, and the connections lost when an endpoint dies before the API
// reports it. It needs root.
//
//	go run ./forward -sluice ../bin/sluice
//	go run ./forward -sluice ../bin/sluice -connections 200 -stream 1s -load 2s -rounds 1   # the smallest
//
// # Method
//
// Client, node and pods are three network namespaces; the node runs the real program on a directory of
// manifests with one Service of two endpoints. A round measures each mode, in turns, in a network of
// its own:
//
//	connect   one connection after the other, from the call to the response of the endpoint
//	stream    one connection that the client fills for a time; CPU time is the time of all
//	          processes and the kernel, the proxy's is the time of its process alone
//	killed    eight clients connect all the time; after a third of the time, one endpoint's server
//	          stops, and after two thirds the manifests lack it. A new connection is lost if it was
//	          refused, reset or without a response for 3 s; never accepted are the lost connections
//	          that no endpoint had accepted when it died
//
// With -services, it prints the descriptors and the memory of a process in userspace mode instead:
//
//	go run ./forward -sluice ../bin/sluice -services 10000
//
// With -faults, one of ten endpoints refuses or drops new connections for 20 s, which the API does not report, and then
// answers again. Five client addresses make 100 connections per second each. A connection is late if its first answer
// takes more than 0.5 s, and fails if it is reset or takes more than 5 s; those of the first 15 s count. In
// refuse-forged, the packets of forged arrive at the same time. In the other faults no endpoint fails, and Sluice must
// suspect none, except in few-reset, where it can:
//
//	forged     2,000 first packets per second, with random source addresses out of 65,536
//	reset      each of them is followed by a reset; the endpoints see half of both
//	few-reset  the same with 64 addresses
//	policy     the pods drop the packets of one client address, which does not count
//	flap       the API removes an endpoint or adds it every 200 ms
//
// An example:
//
//	go run ./forward -faults refuse,blackhole -modes nftables,iptables,userspace -output json
//
// The table has the median of the rounds, for the losses their sum. Run it on a quiet machine.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// settings are the flags.
type settings struct {
	sluice      string
	connections int
	stream      time.Duration
	load        time.Duration
	rounds      int
	services    int
	faults      string
	modes       string
	kubeProxy   string
	words       string
	output      string
}

var modes = []string{"nftables", "userspace"}

func main() {
	var s settings
	flag.StringVar(&s.sluice, "sluice", "../bin/sluice", "the program")
	flag.IntVar(&s.connections, "connections", 5000, "connections of connect")
	flag.DurationVar(&s.stream, "stream", 10*time.Second, "duration of stream")
	flag.DurationVar(&s.load, "load", 9*time.Second, "duration of killed")
	flag.IntVar(&s.rounds, "rounds", 5, "rounds")
	flag.IntVar(&s.services, "services", 0, "measure descriptors and memory at so many Services instead")
	flag.StringVar(&s.faults, "faults", "", "play these faults instead: refuse, blackhole, refuse-forged, forged, reset, few-reset, policy, flap, or the beginnings of their names")
	flag.StringVar(&s.modes, "modes", "nftables,iptables,userspace", "with -faults: of nftables, iptables, ipvs and userspace")
	flag.StringVar(&s.kubeProxy, "kube-proxy", "../bin/e2e-kubeproxy", "with -faults: the real kube-proxy; empty leaves it out")
	flag.StringVar(&s.words, "sluice-flags", "", "with -faults: more flags for Sluice")
	flag.StringVar(&s.output, "output", "table", "with -faults: table or json")
	flag.Parse()
	rig.Main("forward", func(ctx context.Context) error { return compare(ctx, s) })
}

func compare(ctx context.Context, s settings) error {
	var err error
	if s.sluice, err = filepath.Abs(s.sluice); err != nil {
		return err
	}
	if s.faults != "" {
		return compareFailing(ctx, s)
	}
	m := rig.ThisMachine(ctx)
	fmt.Printf("Linux %s, %d processors, load %s, commit %s\n", m.Kernel, m.Processors, m.LoadBefore, m.Commit)
	if s.services > 0 {
		return many(ctx, s.sluice, s.services)
	}
	found := make(map[string][]sample)
	for round := range s.rounds {
		for _, mode := range modes {
			one, err := measure(ctx, s, mode)
			if err != nil {
				return fmt.Errorf("%s: %w", mode, err)
			}
			found[mode] = append(found[mode], one)
			rig.Progress("round %d of %d: %s", round+1, s.rounds, mode)
		}
	}
	return table(found).Print(os.Stdout)
}

// sample is what one round has measured of one mode.
type sample struct {
	connectMedian, connectWorst time.Duration // worst: 99 of 100 are faster
	bytes                       float64       // per second
	processor, proxy            time.Duration // per GB
	// unaccepted are those of the lost that no endpoint had accepted.
	attempted, lost, unaccepted int
}

func table(found map[string][]sample) rig.Table {
	t := rig.Table{Head: append([]string{""}, modes...)}
	row := func(name string, cell func([]sample) string) {
		cells := []string{name}
		for _, mode := range modes {
			cells = append(cells, cell(found[mode]))
		}
		t.Rows = append(t.Rows, cells)
	}
	took := func(of func(sample) time.Duration) func([]sample) string {
		return func(all []sample) string { return median(all, of).Round(time.Microsecond).String() }
	}
	row("connect, median", took(func(s sample) time.Duration { return s.connectMedian }))
	row("connect, 99 of 100", took(func(s sample) time.Duration { return s.connectWorst }))
	row("stream, GB/s", func(all []sample) string {
		return strconv.FormatFloat(median(all, func(s sample) float64 { return s.bytes })/1e9, 'f', 2, 64)
	})
	row("stream, CPU time per GB", took(func(s sample) time.Duration { return s.processor }))
	row("stream, the proxy's", took(func(s sample) time.Duration { return s.proxy }))
	row("killed, new connections", func(all []sample) string {
		return strconv.Itoa(rig.Sum(all, func(s sample) int { return s.attempted }))
	})
	row("killed, lost", func(all []sample) string { return strconv.Itoa(rig.Sum(all, func(s sample) int { return s.lost })) })
	row("killed, never accepted", func(all []sample) string {
		return strconv.Itoa(rig.Sum(all, func(s sample) int { return s.unaccepted }))
	})
	return t
}

func median[T int | float64 | time.Duration](all []sample, of func(sample) T) T {
	var values []T
	for _, s := range all {
		values = append(values, of(s))
	}
	return rig.Percentile(values, 50)
}
