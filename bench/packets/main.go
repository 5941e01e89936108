// SPDX-License-Identifier: Apache-2.0

// Command packets measures the cost of a packet with the rules of Sluice, with the rules of kube-proxy and
// without rules, in one run. It needs root, and the tools of the backends: nft, or iptables.
//
//	go run ./packets -sluice ../bin/sluice -kube-proxy ../bin/e2e-kubeproxy
//	go run ./packets -sluice old=/tmp/sluice-old,new=/tmp/sluice-new -cases one-way,tcp -directions forwarded
//	go run ./packets -services 100,10000 -backends iptables-legacy -rounds 5
//
// It prints Markdown tables, after a line that describes their origin.
//
// # Method
//
// Each variant has a separate network of three namespaces: client, node and pods. Both proxies get the
// same Services from an API server on the node, run until every Service responds to the client and the
// health endpoint reports success, and end. Their rules stay, so that nothing is loaded between samples.
// The variant floor has one masquerade rule that never matches: the cost of connection tracking and NAT.
// The variant none has no rules.
//
// A round takes one sample of each variant in each case, the variants in random order. Client and
// pods are one thread on one processor: the kernel carries a packet from the client through the node
// to a pod before the call that sends it returns, so no wake-up is part of a figure. A sample
// repeats turns of an exchange with each of up to 16 targets, and is their first quartile: an
// interruption can only make a turn longer. Before each turn, other memory fills the CPU's caches
// (-evict), as on a busy node. A sample begins with an empty connection tracking table. Each target is
// checked before (the right pod answers, and affinity holds), and each exchange has to arrive, or the
// sample fails.
//
// The ratio of a round is the quotient of two samples of that round. The table has the median of the
// ratios and their quartiles. A missed goal is bold.
//
// # Cases
//
//	established-*    a request and its answer, 64 bytes each, on an open TCP connection
//	one-way-*        a datagram of a flow without responses
//	tcp-*            a TCP connection is opened, accepted and reset
//	udp-*            a new socket, a question and its answer
//	source-ranges    tcp to a load balancer's address that is open to four ranges
//	affinity-N       tcp to a Service with N endpoints and affinity, by a client that it knows
//
// In forwarded, the client is a pod of the node; in local, it is on the node.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/service"
)

// options are what the flags choose.
type options struct {
	// variants are compared with the first one.
	variants   []variant
	backends   []string
	families   []service.Family
	directions []string
	cases      []benchCase
	services   []int
	endpoints  int
	rounds     int
	sampling   sampling
	patience   time.Duration
	rules      string
}

func main() {
	parse := optionFlags(flag.CommandLine)
	flag.Parse()
	rig.Main("packets", func(ctx context.Context) error {
		o, err := parse()
		if err != nil {
			return err
		}
		var others []string
		for _, v := range o.variants {
			if v.name == kubeProxy {
				others = append(others, v.program)
			}
		}
		origin, err := rig.Origin(ctx, others...)
		if err != nil {
			return err
		}
		results, err := runAll(ctx, o)
		fmt.Println(origin + "\n")
		return errors.Join(err, show(os.Stdout, results), failures(results))
	})
}

// optionFlags defines the flags that choose what is measured. The function that it returns reads
// them.
func optionFlags(flags *flag.FlagSet) func() (options, error) {
	var o options
	sluice := flags.String("sluice", "../bin/sluice", "builds of Sluice, as PATH or NAME=PATH, each with more flags, separated by commas")
	proxy := flags.String("kube-proxy", "../bin/e2e-kubeproxy",
		"a build of test/e2e/kubeproxy; empty compares with the first build of Sluice")
	bare := flags.Bool("bare", true, "measure floor and none")
	backends := flags.String("backends", nftables, "of nftables, iptables-nft and iptables-legacy")
	families := flags.String("families", "ipv4,ipv6", "of ipv4 and ipv6; Services have these")
	directions := flags.String("directions", forwarded+","+local, "of forwarded and local")
	only := flags.String("cases", "", "beginnings of the names of cases; empty means all")
	services := flags.String("services", "1000", "numbers of Services")
	flags.IntVar(&o.endpoints, "endpoints", 10, "endpoints per Service")
	flags.IntVar(&o.rounds, "rounds", 15, "samples of each variant in each case")
	flags.DurationVar(&o.sampling.duration, "sample", 40*time.Millisecond, "time of one sample")
	flags.IntVar(&o.sampling.processor, "processor", lastProcessor(), "processor that sends and receives")
	evict := flags.Int("evict", 8, "MiB of other memory touched before each turn; 0 measures with hot caches")
	flags.BoolVar(&o.sampling.realtime, "realtime", false,
		"let nothing else run on that processor during a sample, for a busy machine")
	flags.DurationVar(&o.patience, "patience", 3*time.Minute,
		"leave a proxy out whose rules are not applied after this long")
	flags.StringVar(&o.rules, "rules", "", "write the rules of each variant into this folder")
	return func() (options, error) {
		var errs [6]error
		o.variants, errs[0] = parseVariants(*proxy, *sluice, *bare)
		o.backends, errs[1] = choose("backend", *backends, nftables, iptablesNFT, iptablesLegacy)
		o.directions, errs[2] = choose("direction", *directions, forwarded, local)
		o.families, errs[3] = parseFamilies(*families)
		o.cases, errs[4] = chooseCases(*only)
		o.services, errs[5] = parseSizes(*services)
		o.sampling.evict = make([]byte, max(0, *evict)<<20)
		if o.endpoints < 2 || o.rounds < 1 || o.sampling.duration <= 0 {
			return o, fmt.Errorf("endpoints %d, rounds %d, sample %v: must be at least 2, at least 1, more than 0",
				o.endpoints, o.rounds, o.sampling.duration)
		}
		return o, errors.Join(errs[:]...)
	}
}

// parseVariants returns the variants, the one to compare with first.
func parseVariants(proxy, builds string, bare bool) ([]variant, error) {
	var all []variant
	if proxy != "" {
		all = append(all, variant{name: kubeProxy, program: proxy})
	}
	for i, build := range strings.Split(builds, ",") {
		name, path, named := strings.Cut(build, "=")
		if !named {
			name, path = "sluice", build
			if i > 0 {
				name = fmt.Sprintf("sluice-%d", i+1)
			}
		}
		path, words, _ := strings.Cut(path, " ")
		if slices.ContainsFunc(all, func(v variant) bool { return v.name == name }) || name == floor || name == none {
			return nil, fmt.Errorf("-sluice: the name %q is taken", name)
		}
		all = append(all, variant{name: name, program: path, words: words})
	}
	for i, v := range all {
		path, err := filepath.Abs(v.program)
		if err == nil {
			path, err = exec.LookPath(path)
		}
		if err != nil {
			return nil, fmt.Errorf("the program of %s: %w", v.name, err)
		}
		all[i].program = path
	}
	if bare {
		all = append(all, variant{name: floor}, variant{name: none})
	}
	return all, nil
}

// choose splits words and makes sure that each is one of those known.
func choose(what, words string, known ...string) ([]string, error) {
	chosen := strings.Split(words, ",")
	for _, word := range chosen {
		if !slices.Contains(known, word) {
			return nil, fmt.Errorf("%s %q: must be one of %s", what, word, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}

func parseFamilies(words string) ([]service.Family, error) {
	chosen, err := choose("family", words, "ipv4", "ipv6")
	var families []service.Family
	for _, word := range chosen {
		families = append(families, map[string]service.Family{"ipv4": service.IPv4, "ipv6": service.IPv6}[word])
	}
	return families, err
}

func parseSizes(words string) ([]int, error) {
	var sizes []int
	for word := range strings.SplitSeq(words, ",") {
		size, err := strconv.Atoi(word)
		if err != nil || size < servicesMin || size > 20000 {
			return nil, fmt.Errorf("services %q: must be numbers from %d to 20000", word, servicesMin)
		}
		sizes = append(sizes, size)
	}
	return sizes, nil
}

// failures returns what went wrong in single cases.
func failures(results []result) error {
	var all []error
	for _, r := range results {
		if r.Error != "" {
			all = append(all, fmt.Errorf("%s, %s: %s: %s", titleOf(r), r.Case, r.Variant, r.Error))
		}
	}
	return errors.Join(all...)
}
