// SPDX-License-Identifier: Apache-2.0

// Command upstream writes the section "Conformance" of docs/reliability.md from the results of Kubernetes' end-to-end
// tests of the network. `make test-upstream` runs these tests, with the build tag upstream, and records the results.
//
//	go run ./upstream -results upstream/results -o ../../docs/reliability.md
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
)

func main() {
	dir := flag.String("results", "upstream/results", "directory of the recorded results")
	out := flag.String("o", "../../docs/reliability.md", "the page with the section")
	flag.Parse()
	if err := writePage(*dir, *out); err != nil {
		fmt.Fprintln(os.Stderr, "upstream:", err)
		os.Exit(1)
	}
}

// The section is between these lines of the page.
const (
	begin = "<!-- generated: conformance -->\n"
	end   = "<!-- end of conformance -->\n"
)

func writePage(dir, out string) error {
	results, err := readResults(dir)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(out)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(old), begin)
	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		return fmt.Errorf("%s contains no part between %q and %q", out, begin, end)
	}
	return os.WriteFile(out, []byte(before+begin+"\n"+section(results)+"\n"+end+after), 0o644)
}

// readResults returns the recorded results, the baseline of each mode first.
func readResults(dir string) ([]result, error) {
	var all []result
	for _, mode := range modes {
		for _, proxy := range proxies {
			r, err := readResult(resultFile(dir, proxy, mode))
			switch {
			case errors.Is(err, fs.ErrNotExist):
			case err != nil:
				return nil, err
			default:
				all = append(all, r)
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s contains no results; run make test-upstream", dir)
	}
	return all, nil
}

// What the tests run with. The first proxy is the baseline.
var (
	proxies = []string{"kube-proxy", "sluice"}
	modes   = []string{"nftables", "iptables"}
)

// section renders the results.
func section(results []result) string {
	var b strings.Builder
	row(&b, "Proxy", "Version", "Mode", "Passed", "Failed", "Skipped", "Excluded", "Date")
	row(&b, slices.Repeat([]string{"---"}, 8)...)
	for _, r := range results {
		row(&b, r.Proxy, r.Version, r.Mode, fmt.Sprint(r.count(passed)), fmt.Sprint(r.count(failed)),
			fmt.Sprint(r.count(skipped)), fmt.Sprint(r.count(excluded)), r.Date)
	}
	fmt.Fprintf(&b, "\nThe tests are those of Kubernetes %s, on Linux %s.\n", results[0].Kubernetes, results[0].Kernel)
	differences(&b, results)
	failedTable(&b, results)
	omittedTable(&b, results)
	return b.String()
}

// differences lists what Sluice does not pass although the baseline does.
func differences(b *strings.Builder, results []result) {
	var rows strings.Builder
	for i, r := range results {
		if r.Proxy == proxies[0] || i == 0 || results[i-1].Mode != r.Mode {
			continue
		}
		for _, one := range missing(results[i-1], r) {
			fmt.Fprintf(&rows, "- `%s`, in %s mode: %s.\n", one.Name, r.Mode, one.State)
		}
	}
	if rows.Len() == 0 {
		b.WriteString("Sluice passes every test that kube-proxy passes.\n")
		return
	}
	b.WriteString("\nTests that only kube-proxy passes:\n\n" + rows.String())
}

// omittedTable counts the tests that were excluded or skipped themselves, by their reason.
func omittedTable(b *strings.Builder, results []result) {
	counts, skips := map[string]int{}, map[string]map[string]bool{}
	for name, states := range byName(results) {
		if slices.Contains(states, excluded) {
			counts[exclusionOf(name).reason]++
		}
	}
	for _, r := range results {
		for _, one := range r.Tests {
			if one.State != skipped {
				continue
			}
			if skips[one.Message] == nil {
				skips[one.Message] = map[string]bool{}
			}
			skips[one.Message][one.Name] = true
		}
	}
	b.WriteString("\nTests that are excluded, or skip themselves in at least one mode:\n\n")
	row(b, "Tests that …", "Tests")
	row(b, "---", "---:")
	for _, e := range exclusions {
		row(b, e.reason, fmt.Sprint(counts[e.reason]))
	}
	for _, reason := range slices.Sorted(maps.Keys(skips)) {
		row(b, "skip themselves: `"+strings.ReplaceAll(reason, "|", `\|`)+"`", fmt.Sprint(len(skips[reason])))
	}
}

// byName returns the states of each test, one per result.
func byName(results []result) map[string][]string {
	all := map[string][]string{}
	for i, r := range results {
		for _, one := range r.Tests {
			if all[one.Name] == nil {
				all[one.Name] = make([]string, len(results))
			}
			all[one.Name][i] = one.State
		}
	}
	return all
}

// failedTable lists the tests that failed with a proxy, with all results.
func failedTable(b *strings.Builder, results []result) {
	header := []string{"Test"}
	for _, r := range results {
		header = append(header, r.Proxy+", "+r.Mode)
	}
	var rows [][]string
	states := byName(results)
	for _, name := range slices.Sorted(maps.Keys(states)) {
		if slices.Contains(states[name], failed) {
			rows = append(rows, append([]string{"`" + strings.TrimPrefix(name, group) + "`"}, states[name]...))
		}
	}
	if len(rows) == 0 {
		return
	}
	b.WriteString("\nFailed tests:\n\n")
	row(b, header...)
	row(b, slices.Repeat([]string{"---"}, len(header))...)
	for _, cells := range rows {
		row(b, cells...)
	}
}

func row(b *strings.Builder, cells ...string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}
