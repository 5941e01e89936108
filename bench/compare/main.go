// Command compare runs kube-proxy and sluice in turns on one node of a real cluster, under the same
// load, and judges both from outside: by new connections to Services, and by what /proc contains
// about their processes. It needs root, and makes its own network namespaces.
//
//	go run ./compare -n 1000 -minutes 4
//	go run ./compare -n 200 -minutes 1 -steps churn -json quick.json
//	go run ./compare -n 1000 -soak 60s
//	go run ./compare -n 5000 -nodes 200
//
// The third form runs sluice alone for that long, and compares what the process and the kernel hold
// at the end with what they held after the first minute. The last form runs sluice on so many nodes
// of one cluster, and measures what they cost the API server.
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

	"github.com/sluice-proxy/sluice/bench/result"
	"github.com/sluice-proxy/sluice/bench/rig"
)

// options are the flags.
type options struct {
	N             int
	Mode, Variant string
	Minutes       float64
	Rounds        int
	Steps         []string
	Limit         time.Duration
	// soak is how long Sluice runs alone, instead of the comparison.
	soak time.Duration
	// nodes is how many nodes run Sluice, instead of the comparison.
	nodes int

	// former is empty if one release of kube-proxy is compared.
	sluice, kubeProxy, former, apiServer string
	// json is where the result goes besides the terminal, or empty.
	json string
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
		case o.nodes > 0:
			return fleetAll(ctx, o)
		default:
			return compare(ctx, o)
		}
	})
}

func parse(arguments []string) (o options, err error) {
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.IntVar(&o.N, "n", 5000, "Services in the cluster")
	flags.StringVar(&o.Mode, "mode", "nftables", "mode of both programs: nftables or iptables")
	flags.StringVar(&o.Variant, "variant", "", "iptables programs for both: nft or legacy; empty means the machine's default")
	flags.Float64Var(&o.Minutes, "minutes", 8, "minutes of churn, divided among the programs, rates and rounds")
	flags.IntVar(&o.Rounds, "rounds", 1, "turns of each program; the last program of a round is the first of the next")
	steps := flags.String("steps", strings.Join(stepNames(), ","), "steps after the cold start")
	flags.DurationVar(&o.Limit, "limit", 3*time.Minute, "longest wait for one event; longer ones are reported as not within this time")
	flags.DurationVar(&o.soak, "soak", 0, "instead of comparing, run sluice this long under changes and faults, and check that nothing grows")
	flags.IntVar(&o.nodes, "nodes", 0, "instead of comparing, run sluice on so many nodes, and measure the API server")
	flags.StringVar(&o.sluice, "sluice", "../bin/sluice", "the program, as make build builds it")
	flags.StringVar(&o.kubeProxy, "kube-proxy", "../bin/e2e-kubeproxy", "the program, built from test/e2e/kubeproxy")
	flags.StringVar(&o.former, "former", "../bin/e2e-kubeproxy-1.36", "kube-proxy of the minor release before; empty leaves it out")
	flags.StringVar(&o.apiServer, "apiserver", "../bin/e2e-apiserver", "kube-apiserver, built from test/e2e/apiserver")
	flags.StringVar(&o.json, "json", "", "also write the result to this file, for the performance page")
	if err := flags.Parse(arguments); err != nil {
		return o, err
	}
	if o.Steps, err = chooseSteps(*steps); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q; see -help", flags.Arg(0))
	case o.N < 20 || o.N > 30000:
		return o, fmt.Errorf("-n %d: must be 20 to 30000, for which the range of ClusterIPs has room", o.N)
	case o.Mode != "nftables" && o.Mode != "iptables":
		return o, fmt.Errorf("-mode %q: must be nftables or iptables", o.Mode)
	case o.Variant != "" && (o.Mode != "iptables" || o.Variant != "nft" && o.Variant != "legacy"):
		return o, fmt.Errorf("-variant %q: must be nft or legacy, with -mode iptables", o.Variant)
	case o.nodes < 0 || o.nodes > 10000 || o.nodes > 0 && (o.soak > 0 || o.Mode != "nftables"):
		return o, errors.New("-nodes: must be 0 to 10000, in mode nftables and without -soak")
	case o.Minutes <= 0 || o.Rounds < 1 || o.Limit < time.Second:
		return o, errors.New("-minutes, -rounds and -limit must be more than 0")
	}
	return o, nil
}

// programs are those that take turns.
func (o options) programs() []string {
	switch {
	case o.soak > 0 || o.nodes > 0:
		return []string{result.Sluice}
	case o.former == "":
		return []string{result.Sluice, result.KubeProxy}
	}
	return slices.Clone(result.Programs)
}

func (o options) binary(program string) string {
	return map[string]string{result.Sluice: o.sluice, result.KubeProxy: o.kubeProxy, result.Former: o.former}[program]
}
