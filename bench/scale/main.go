// Command scale measures the whole proxy in one process against the real kernel,
// in a sandbox: manifests with many Services are read, programmed and then
// changed one endpoint at a time. It prints the cold start, the memory per idle
// Service, and the time and work of one change.
//
//	go run ./scale -services 5000 -endpoints 10 -variant legacy
//	go run ./scale -services 10000 -mode nftables -changes 200
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/sandbox"
)

type options struct {
	services  int
	endpoints int
	changes   int
	mode      string
	variant   string
	output    string
}

func main() {
	var o options
	flag.IntVar(&o.services, "services", 5000, "number of Services")
	flag.IntVar(&o.endpoints, "endpoints", 10, "endpoints per Service")
	flag.IntVar(&o.changes, "changes", 30, "single endpoint changes to measure")
	flag.StringVar(&o.mode, "mode", "iptables", "kernel backend: iptables or nftables")
	flag.StringVar(&o.variant, "variant", "auto", "iptables variant: auto, legacy or nft")
	flag.StringVar(&o.output, "output", "table", "table or json")
	flag.Parse()
	if !sandbox.Inside() {
		status, err := sandbox.Run()
		if err != nil {
			fmt.Fprintln(os.Stderr, "Error:", err)
		}
		os.Exit(status)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	r, err := measure(ctx, o)
	if err == nil {
		err = show(r, o.output)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func show(r result, output string) error {
	if output == "json" {
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("domain", "%s", r.Domain)
	row("Services × endpoints", "%d × %d", r.Services, r.Endpoints)
	row("cold start, manifests read to all programmed", "%.2f s", r.ColdStartSeconds)
	row("resident memory", "%.0f MiB", r.ResidentMiB)
	row("heap and stacks per Service, all included", "%.1f KiB", r.KiBPerService)
	row("  of that stacks", "%.1f KiB", r.StackKiBPerService)
	row("one endpoint changed, file saved to kernel, p50 / p99", "%.1f / %.1f ms", r.ChangeMillis50, r.ChangeMillis99)
	row("  handed over by the source to kernel, p50 / p99", "%.2f / %.2f ms", r.PipelineMillis50, r.PipelineMillis99)
	row("  objects, lines, bytes written", "%d, %d, %d", r.ChangeObjects, r.ChangeLines, r.ChangeBytes)
	return t.Flush()
}
