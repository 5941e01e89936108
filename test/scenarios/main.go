// SPDX-License-Identifier: Apache-2.0

// Command scenarios plays the acceptance scenarios on the real kernel, with the real proxy as a
// process, and prints a table.
//
//	go run ./test/scenarios -mode nftables -only 'S-CIP'
//	go run ./test/scenarios -mode nftables -generate 20 -seed 1
//
// The second line generates twenty scenarios. A shortened form of each that fails is printed, and
// -file plays it again.
//
// It needs root, or a user namespace in which it is mapped to root.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-proxy/sluice/test/scenarios/explained"
	"github.com/sluice-proxy/sluice/test/scenarios/list"
	"github.com/sluice-proxy/sluice/test/scenarios/play"
	"github.com/sluice-proxy/sluice/test/scenarios/script"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	failed, err := run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "scenarios:", err)
		os.Exit(2)
	}
	if failed > 0 {
		os.Exit(1)
	}
}

func run(ctx context.Context) (failed int, err error) {
	mode := flag.String("mode", "nftables", "mode of the proxy: iptables, nftables, ipvs or userspace")
	variant := flag.String("variant", "", "programs of mode iptables: legacy or nft; default: as the proxy chooses")
	only := flag.String("only", "", "regular expression for the numbers of scenarios to play")
	binary := flag.String("binary", "bin/sluice", "the program to test")
	dir := flag.String("logs", "", "directory for the logs of the proxies; default: one that is removed if all pass")
	workers := flag.Int("workers", 6, "scenarios at a time; most of them wait most of the time")
	output := flag.String("output", "table", "table or json")
	timeout := flag.Duration("timeout", 5*time.Minute, "longest time for one scenario")
	var m making
	flag.IntVar(&m.count, "generate", 0, "make up as many scenarios instead of playing the list")
	flag.Uint64Var(&m.first, "seed", 1, "seed of the first scenario that is made up")
	flag.IntVar(&m.attempts, "attempts", 60, "how often a made-up scenario that failed is played again to shorten it")
	file := flag.String("file", "", "play the scenarios of this file instead of the list")
	explains := flag.Bool("explain", true, "ask sluice explain the same questions; a disagreement is a failure")
	flags := flag.String("flags", "", "more flags of all proxies: NAME=VALUE without dashes, separated by commas")
	slow := flag.Int("slow", 1, "factor for all waits, for a machine that is emulated")
	flag.Parse()
	play.SlowDown(*slow)
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return 0, fmt.Errorf("-only: %w", err)
	}
	read := list.All
	if *file != "" {
		read = func() ([]script.Scenario, error) { return fromFile(*file) }
	}
	all, err := read()
	if err != nil {
		return 0, err
	}
	s := suite{mode: *mode, variant: *variant, binary: *binary, dir: *dir, workers: *workers, timeout: time.Duration(*slow) * *timeout}
	if s.flags, err = parseFlags(*flags); err != nil {
		return 0, err
	}
	if *explains && *mode != "userspace" { // which explain does not know
		s.compared = &explained.Counts{}
	}
	encoder := json.NewEncoder(os.Stdout)
	print := func(r result) { _ = encoder.Encode(r) } // the reader may have closed the pipe
	if *output == "table" {
		print = printTable(*mode)
	}
	var sum summary
	if m.count > 0 {
		sum, err = m.play(ctx, s, os.Stderr, print)
	} else {
		sum, err = s.play(ctx, all, pattern, print)
	}
	if err != nil {
		return 0, err
	}
	if *output == "table" {
		fmt.Println(sum)
		if s.compared != nil {
			fmt.Println(s.compared)
		}
	}
	return sum.failed, nil
}

// parseFlags returns the flags of a list.
func parseFlags(list string) (map[string]string, error) {
	flags := map[string]string{}
	for word := range strings.SplitSeq(list, ",") {
		if name, value, ok := strings.Cut(word, "="); ok {
			flags[name] = value
		} else if list != "" {
			return nil, fmt.Errorf("-flags: %q must be NAME=VALUE", word)
		}
	}
	return flags, nil
}
