// Command layout compares ways to write kube-proxy's nat table for iptables: how long it takes to load, to change and to pass.
// Every layout gets a network namespace of its own; the host's rules are not touched. It needs root.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	variant := flag.String("variant", "legacy", "iptables variant: legacy or nft")
	services := flag.Int("services", 1000, "number of Services")
	endpoints := flag.Int("endpoints", 10, "endpoints of each Service")
	leaves := flag.String("leaves", "16,32,64", "leaf sizes to measure with one rule per endpoint; three rules are measured with 32")
	only := flag.String("only", "", "measure the layouts whose name contains this")
	repeat := flag.Int("repeat", 6, "repetitions of each change; a whole table is loaded a third as often")
	flows := flag.Int("flows", 3000, "new flows to each target")
	timeout := flag.Duration("timeout", 60*time.Second, "give up on a write after this long")
	split := flag.Int("split", 0, "load a whole table as inputs of at most this many chains; 0 is one input")
	output := flag.String("output", "table", "output: table or json")
	flag.Parse()
	if err := measure(*variant, *services, *endpoints, *leaves, *only, *repeat, *flows, *split, *timeout, *output); err != nil {
		fmt.Fprintln(os.Stderr, "layout:", err)
		os.Exit(1)
	}
}

func measure(variant string, count, endpoints int, leaves, only string, repeat, flows, split int, timeout time.Duration, output string) error {
	if variant != "legacy" && variant != "nft" {
		return fmt.Errorf("unknown variant %q", variant)
	}
	layouts := []layout{{}, {Diet: true}, {Leaf: 32}}
	for field := range strings.SplitSeq(leaves, ",") {
		leaf, err := strconv.Atoi(field)
		if err != nil || leaf < 1 {
			return fmt.Errorf("leaf size %q", field)
		}
		layouts = append(layouts, layout{Leaf: leaf, Diet: true})
	}
	// The namespace belongs to the thread, and so do the children and sockets it starts.
	runtime.LockOSThread()
	directory, err := os.MkdirTemp("", "layout")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	b := bench{variant: variant, repeat: repeat, flows: flows, split: split, timeout: timeout, lock: filepath.Join(directory, "lock")}
	all, extra := generate(count, endpoints)
	var results []result
	for _, l := range layouts {
		if !strings.Contains(l.String(), only) {
			continue
		}
		r, err := b.run(l, all, extra)
		if err != nil {
			return err
		}
		results = append(results, r)
		time.Sleep(time.Second) // the kernel clears the namespace before in the background
	}
	if output == "json" {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(results)
	}
	return printTable(results)
}

func printTable(results []result) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "variant\tN\tdispatch\tper endpoint\tchains\trules\tload ms\treplace ms\t+dispatch ms\tadd ms\tpassed\tfirst µs\tlast µs\tmiss µs\t")
	for _, r := range results {
		dispatch, endpoint, _ := strings.Cut(r.Layout, " ")
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%d\t%d\t", r.Variant, r.Services, dispatch, endpoint, r.Chains, r.Rules)
		if r.Note != "" {
			fmt.Fprintf(w, "%s\t\t\t\t\t\t\t\t\n", r.Note)
			continue
		}
		extended := "-"
		if r.ReplaceWhole > 0 {
			extended = fmt.Sprintf("%.1f", r.ReplaceWhole)
		}
		fmt.Fprintf(w, "%.1f\t%.1f\t%s\t%.1f\t%d-%d\t%.1f\t%.1f\t%.1f\t\n", r.Load, r.Replace, extended, r.Add,
			r.FewestRules, r.MostRules, float64(r.First)/1000, float64(r.Last)/1000, float64(r.Miss)/1000)
	}
	return w.Flush()
}
