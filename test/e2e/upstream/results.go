// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The states of a test. The suite itself prints those that are not listed here: pending, panicked,
// timedout and so on, which count as failed.
const (
	passed   = "passed"
	failed   = "failed"
	skipped  = "skipped"  // by the test, which gives a reason
	excluded = "excluded" // by one of the exclusions
)

// test is the result of one test.
type test struct {
	Name     string  `json:"name"`
	State    string  `json:"state"`
	Seconds  float64 `json:"seconds,omitempty"`
	Attempts int     `json:"attempts,omitempty"` // if there were several
	Message  string  `json:"message,omitempty"`  // why it failed or was skipped, in one line
}

// result is the outcome of the suite for one proxy in one mode.
type result struct {
	Proxy      string `json:"proxy"`
	Mode       string `json:"mode"`
	Version    string `json:"version"` // of the proxy
	Kubernetes string `json:"kubernetes"`
	Kernel     string `json:"kernel"`
	Date       string `json:"date"`
	Minutes    int    `json:"minutes"`
	Tests      []test `json:"tests"` // by name
}

// messageMax bounds a recorded message.
const messageMax = 200

// group begins the name of each test of the network. The suite contains tests of other groups, too.
const group = "[sig-network] "

// readTests reads the lines that the suite wrote: one test each, the last line of a test counts. It
// leaves out other groups and the tests that were not selected.
func readTests(lines io.Reader) ([]test, error) {
	all := map[string]test{}
	scanner := bufio.NewScanner(lines)
	scanner.Buffer(nil, 1<<24) // a message may contain the output of a command
	for scanner.Scan() {
		var one test
		if err := json.Unmarshal(scanner.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("line %q: %w", scanner.Text(), err)
		}
		if strings.HasPrefix(one.Name, group) {
			all[one.Name] = one
		}
	}
	if err := scanner.Err(); err != nil {
		return nil, err
	}
	var tests []test
	for _, one := range all {
		if one.State == passed && one.Attempts == 0 {
			return nil, fmt.Errorf("test %q passed without an attempt", one.Name)
		}
		one.Message = oneLine(one.Message)
		if one.Attempts == 1 {
			one.Attempts = 0
		}
		switch {
		case one.State == "pending", one.State == skipped && one.Message == "":
			if exclusionOf(one.Name) == nil {
				continue
			}
			one = test{Name: one.Name, State: excluded}
		case one.State != passed && one.State != skipped:
			one.State = failed
		}
		tests = append(tests, one)
	}
	slices.SortFunc(tests, func(a, b test) int { return cmp.Compare(a.Name, b.Name) })
	return tests, nil
}

// oneLine returns the first line of a message, or its beginning.
func oneLine(message string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(message), "\n")
	return line[:min(len(line), messageMax)]
}

// count returns the number of tests in a state.
func (r result) count(state string) int {
	n := 0
	for _, one := range r.Tests {
		if one.State == state {
			n++
		}
	}
	return n
}

// find returns a test, which has no state if it is not part of the result.
func (r result) find(name string) test {
	at, found := slices.BinarySearchFunc(r.Tests, name, func(one test, name string) int { return cmp.Compare(one.Name, name) })
	if !found {
		return test{}
	}
	return r.Tests[at]
}

// missing returns the tests that the baseline passes and the other result does not, as the other
// result has them.
func missing(baseline, other result) []test {
	var all []test
	for _, one := range baseline.Tests {
		if one.State != passed {
			continue
		}
		if found := other.find(one.Name); found.State == "" {
			all = append(all, test{Name: one.Name, State: "not run"})
		} else if found.State != passed {
			all = append(all, found)
		}
	}
	return all
}

// resultFile names the record of a proxy in a mode.
func resultFile(dir, proxy, mode string) string {
	return filepath.Join(dir, proxy+"-"+mode+".json")
}

func readResult(file string) (result, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return result{}, err
	}
	var r result
	if err := json.Unmarshal(text, &r); err != nil {
		return result{}, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

func (r result) write(file string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// exclusion leaves out the tests whose name matches a pattern.
type exclusion struct {
	pattern *regexp.Regexp
	reason  string
}

// exclusions are the tests that this cluster cannot run, for any proxy.
var exclusions = []exclusion{
	{regexp.MustCompile(`\[Feature:LoadBalancer\]`), "need the load balancer of a cloud"},
	{regexp.MustCompile(`\[Feature:NetworkPolicy\]`), "need a network plugin that applies network policies"},
	{regexp.MustCompile(`\[Feature:SCTPConnectivity\]`), "need SCTP in the kernel"},
	{regexp.MustCompile(`\[Feature:Networking-(IPv4|IPv6|DNS)\]`), "connect to the Internet"},
	{regexp.MustCompile(`\[Feature:(Networking-Performance|PerformanceDNS)\]`), "measure performance"},
	{regexp.MustCompile(`\[Disruptive\]`), "need SSH, or delete the pods of the control plane and of kube-proxy"},
	{regexp.MustCompile(`\[Provider:`), "need a certain cloud"},
	{regexp.MustCompile(`should be rejected for evicted pods`), "need kubelets that measure the disk usage of pods"},
	{regexp.MustCompile(`should let a node pull an image from a registry`), "need an image from a public registry"},
	{regexp.MustCompile(`DNS configMap nameserver`), "replace the configuration of the DNS server, and need the Internet"},
}

// exclusionOf returns the first exclusion of a test, or nil.
func exclusionOf(name string) *exclusion {
	for i := range exclusions {
		if exclusions[i].pattern.MatchString(name) {
			return &exclusions[i]
		}
	}
	return nil
}
