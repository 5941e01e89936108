// Command scenarios plays the acceptance scenarios on the real kernel, with the
// real proxy as a process, and prints a table.
//
//	go run ./test/scenarios -mode nftables -only 'S-CIP'
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
	"syscall"
	"time"

	"github.com/sluice-proxy/sluice/test/scenarios/list"
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
	mode := flag.String("mode", "nftables", "mode of the proxy: iptables or nftables")
	variant := flag.String("variant", "", "programs of mode iptables: legacy or nft; default: as the proxy chooses")
	only := flag.String("only", "", "regular expression for the numbers of scenarios to play")
	binary := flag.String("binary", "bin/sluice", "the program to test")
	dir := flag.String("logs", "", "directory for the logs of the proxies; default: one that is removed if all pass")
	workers := flag.Int("workers", 6, "scenarios at a time; most of them wait most of the time")
	output := flag.String("output", "table", "table or json")
	timeout := flag.Duration("timeout", 90*time.Second, "longest time for one scenario")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return 0, fmt.Errorf("-only: %w", err)
	}
	all, err := list.All()
	if err != nil {
		return 0, err
	}
	s := suite{mode: *mode, variant: *variant, binary: *binary, dir: *dir, workers: *workers, timeout: *timeout}
	print := printTable(*mode)
	if *output == "json" {
		encoder := json.NewEncoder(os.Stdout)
		print = func(r result) { _ = encoder.Encode(r) } // whoever reads it may have gone
	}
	sum, err := s.play(ctx, all, pattern, print)
	if err != nil {
		return 0, err
	}
	if *output == "table" {
		fmt.Println(sum)
	}
	return sum.failed, nil
}
