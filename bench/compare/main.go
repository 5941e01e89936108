// SPDX-License-Identifier: Apache-2.0

// Command compare runs kube-proxy and sluice in turns on one node of a real cluster, under the same load, and judges both
// from outside: by new connections to Services, and by what /proc contains about their processes. It needs root, and
// makes its own network namespaces. It prints Markdown tables, after a line that describes their origin.
//
//	go run ./compare -n 1000 -minutes 4
//	go run ./compare -n 200 -minutes 1 -steps churn
//	go run ./compare -n 1000 -soak 60s
//
// The last form runs sluice alone for that long, and compares what the process and the kernel hold at the end with what
// they held after the first minute.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// options are the flags.
type options struct {
	services      int
	mode, variant string
	minutes       float64
	rounds        int
	steps         []string
	limit         time.Duration
	// soak is how long Sluice runs alone, instead of the comparison.
	soak time.Duration
	// binaries are the files by program. former has none if one release of kube-proxy is compared.
	binaries  map[string]string
	apiServer string
}

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	rig.Main("compare", func(ctx context.Context) error {
		switch {
		case err != nil:
			return err
		case o.soak > 0:
			return soakAll(ctx, o)
		default:
			return compare(ctx, o)
		}
	})
}

func parse(arguments []string) (o options, err error) {
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.IntVar(&o.services, "n", 5000, "Services in the cluster")
	flags.StringVar(&o.mode, "mode", "nftables", "mode of both programs: nftables or iptables")
	flags.StringVar(&o.variant, "variant", "", "iptables programs for both: nft or legacy; empty means the machine's default")
	flags.Float64Var(&o.minutes, "minutes", 8, "minutes of churn, divided among the programs, rates and rounds")
	flags.IntVar(&o.rounds, "rounds", 1, "turns of each program; the last program of a round is the first of the next")
	steps := flags.String("steps", strings.Join(stepNames(), ","), "steps after the cold start")
	flags.DurationVar(&o.limit, "limit", 3*time.Minute, "longest wait for one event; longer ones are reported as not within this time")
	flags.DurationVar(&o.soak, "soak", 0, "instead of comparing, run sluice this long under changes and faults, and check that nothing grows")
	ours := flags.String("sluice", "../bin/sluice", "the program, as make build builds it")
	theirs := flags.String("kube-proxy", "../bin/e2e-kubeproxy", "the program, built from test/e2e/kubeproxy")
	before := flags.String("former", "../bin/e2e-kubeproxy-1.36", "kube-proxy of the minor release before; empty leaves it out")
	flags.StringVar(&o.apiServer, "apiserver", "../bin/e2e-apiserver", "kube-apiserver, built from test/e2e/apiserver")
	if err := flags.Parse(arguments); err != nil {
		return o, err
	}
	o.binaries = map[string]string{sluice: *ours, kubeProxy: *theirs, former: *before}
	if o.steps, err = chooseSteps(*steps); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q; see -help", flags.Arg(0))
	case o.services < 20 || o.services > 30000:
		return o, fmt.Errorf("-n %d: must be 20 to 30000, for which the range of ClusterIPs has room", o.services)
	case o.mode != "nftables" && o.mode != "iptables":
		return o, fmt.Errorf("-mode %q: must be nftables or iptables", o.mode)
	case o.variant != "" && (o.mode != "iptables" || o.variant != "nft" && o.variant != "legacy"):
		return o, fmt.Errorf("-variant %q: must be nft or legacy, with -mode iptables", o.variant)
	case o.minutes <= 0 || o.rounds < 1 || o.limit < time.Second:
		return o, errors.New("-minutes, -rounds and -limit must be more than 0")
	}
	return o, nil
}

// programs are those that take turns.
func (o options) programs() []string {
	if o.soak > 0 {
		return []string{sluice}
	}
	return slices.DeleteFunc(slices.Clone(programs), func(name string) bool { return o.binaries[name] == "" })
}

// origin describes this run. It fails if a program is missing.
func (o options) origin(ctx context.Context) (string, error) {
	var others []string
	for _, name := range o.programs() {
		if name != sluice {
			others = append(others, o.binaries[name])
		}
	}
	for _, file := range []string{o.binaries[sluice], o.apiServer} {
		if _, err := os.Stat(file); err != nil {
			return "", err
		}
	}
	return rig.Origin(ctx, others...)
}
