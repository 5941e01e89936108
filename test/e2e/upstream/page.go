// Command upstream writes docs/conformance.md from the results of Kubernetes' end-to-end tests of the
// network. `make test-upstream` runs these tests, with the build tag upstream, and records the results.
//
//	go run ./upstream -results upstream/results -o ../../docs/conformance.md
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
	out := flag.String("o", "../../docs/conformance.md", "the page to write")
	flag.Parse()
	if err := writePage(*dir, *out); err != nil {
		fmt.Fprintln(os.Stderr, "upstream:", err)
		os.Exit(1)
	}
}

func writePage(dir, out string) error {
	results, err := readResults(dir)
	if err != nil {
		return err
	}
	return os.WriteFile(out, []byte(page(results)), 0o644)
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

const head = `# Conformance

Results of Kubernetes' published end-to-end tests of the group *sig-network*, with kube-proxy as the baseline and with
Sluice. Each of the three nodes is a set of namespaces on one machine, with containerd, the network plugins of Debian
and a real kubelet. The cluster is dual-stack, with IPv4 first. In nftables mode, node ports on localhost are enabled
(` + "`nodePortAddresses: [primary, localhost]`" + `).

` + "`make test-upstream`" + ` runs the tests and records [the result of each test](../test/e2e/upstream/results), and
` + "`make conformance-page`" + ` generates this page. A failed test is repeated once, with either proxy.

`

// page renders the results.
func page(results []result) string {
	var b strings.Builder
	b.WriteString(head)
	row(&b, "Proxy", "Version", "Mode", "Passed", "Failed", "Skipped", "Excluded", "Minutes", "Date")
	row(&b, slices.Repeat([]string{"---"}, 9)...)
	for _, r := range results {
		row(&b, r.Proxy, r.Version, r.Mode, fmt.Sprint(r.count(passed)), fmt.Sprint(r.count(failed)),
			fmt.Sprint(r.count(skipped)), fmt.Sprint(r.count(excluded)), fmt.Sprint(r.Minutes), r.Date)
	}
	fmt.Fprintf(&b, "\nThe tests are those of Kubernetes %s. The kernel is Linux %s.\n", results[0].Kubernetes, results[0].Kernel)
	differences(&b, results)
	failedTable(&b, results)
	exclusionTable(&b, results)
	skipTable(&b, results)
	return b.String()
}

// differences lists what Sluice does not pass although the baseline does.
func differences(b *strings.Builder, results []result) {
	b.WriteString("\n## Tests that only kube-proxy passes\n\n")
	none := true
	for i, r := range results {
		if r.Proxy == proxies[0] || i == 0 || results[i-1].Mode != r.Mode {
			continue
		}
		for _, one := range missing(results[i-1], r) {
			none = false
			fmt.Fprintf(b, "- `%s`, in %s mode: %s.\n", one.Name, r.Mode, one.State)
		}
	}
	if none {
		b.WriteString("None.\n")
	}
}

func exclusionTable(b *strings.Builder, results []result) {
	counts := map[string]int{}
	for name, states := range byName(results) {
		if slices.Contains(states, excluded) {
			counts[exclusionOf(name).reason]++
		}
	}
	b.WriteString("\n## Excluded tests\n\nThese tests run with neither proxy.\n\n")
	row(b, "Tests that …", "Pattern of the name", "Tests")
	row(b, "---", "---", "---:")
	for _, e := range exclusions {
		row(b, e.reason, "`"+strings.ReplaceAll(e.pattern.String(), "|", `\|`)+"`", fmt.Sprint(counts[e.reason]))
	}
}

func skipTable(b *strings.Builder, results []result) {
	reasons := map[string]string{}
	for _, r := range results {
		for _, one := range r.Tests {
			if one.State == skipped {
				reasons[one.Name] = one.Message
			}
		}
	}
	if len(reasons) == 0 {
		return
	}
	b.WriteString("\n## Skipped tests\n\nThese tests skip themselves on this cluster.\n\n")
	row(b, "Test", "Reason that the test gives")
	row(b, "---", "---")
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		row(b, "`"+name+"`", "`"+strings.ReplaceAll(reasons[name], "|", `\|`)+"`")
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
	b.WriteString("\n## Failed tests\n\n")
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
		b.WriteString("None.\n")
		return
	}
	row(b, header...)
	row(b, slices.Repeat([]string{"---"}, len(header))...)
	for _, cells := range rows {
		row(b, cells...)
	}
}

func row(b *strings.Builder, cells ...string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}
