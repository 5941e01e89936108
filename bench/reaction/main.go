// Command reaction measures the whole proxy in one process against the real
// kernel, from the watch event that a reflector has decoded to the commit of the
// batch that carries it. Each measurement runs in a process and a network
// namespace of its own; the host's rules are not touched. It needs root.
//
//	react-N    one change at a time among N Services: see kinds
//	audit-N    one change at a time for long enough to see an audit
//	hot-E      one Service with E endpoints, one of them replaced
//	resync-N   events that change nothing, of N Services
//	cold-NxE   start of the process to everything programmed, and memory
//
//	go run ./reaction
//	go run ./reaction -only react-1000,cold -output json
//	go run ./reaction -only react-50000 -cpuprofile cpu.pprof
//	go run ./reaction -show monday.json,tuesday.json
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

// options are the flags that a measurement needs to know.
type options struct {
	endpoints  int
	events     int
	rate       float64
	cpuProfile string
	memProfile string
}

func main() {
	var o options
	flag.IntVar(&o.endpoints, "endpoints", 10, "endpoints per Service in react and resync")
	flag.IntVar(&o.events, "events", 300, "changes of each kind to measure")
	flag.Float64Var(&o.rate, "rate", 100, "changes per second where the rate is fixed")
	flag.StringVar(&o.cpuProfile, "cpuprofile", "", "write a processor profile of the measured phase to this file and the measurement's name")
	flag.StringVar(&o.memProfile, "memprofile", "", "write a heap profile at the end of the measured phase to this file and the measurement's name")
	only := flag.String("only", "", "measurements, or beginnings of their names, separated by commas; empty means all")
	output := flag.String("output", "table", "table or json")
	timeout := flag.Duration("timeout", 15*time.Minute, "give up on one measurement after this long")
	stored := flag.String("show", "", "measure nothing, print the results in these files, which were made with -output json")
	inside := flag.String("inside", "", "used by the program itself: run this measurement, in the namespace of this process")
	flag.Parse()

	err := o.validate(*output)
	switch {
	case err != nil:
	case *inside != "":
		err = measureInside(o, *inside, *timeout)
	case *stored != "":
		err = showStored(*stored, *output)
	default:
		err = measureAll(*only, *output, *timeout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "reaction:", err)
		os.Exit(1)
	}
}

func (o options) validate(output string) error {
	switch {
	case output != "table" && output != "json":
		return fmt.Errorf("output %q: want table or json", output)
	case o.endpoints < 2 || o.events < 1 || o.rate <= 0:
		return fmt.Errorf("endpoints %d, events %d, rate %v: want at least 2, at least 1, more than 0", o.endpoints, o.events, o.rate)
	}
	return nil
}

// measureAll runs the chosen measurements one after the other and prints what
// they have found.
func measureAll(only, output string, timeout time.Duration) error {
	chosen, err := choose(only)
	if err != nil {
		return err
	}
	var results []result
	for i, name := range chosen {
		fmt.Fprintf(os.Stderr, "%s (%d of %d)\n", name, i+1, len(chosen))
		r, err := runChild(name, timeout)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		results = append(results, r)
	}
	return report(results, output)
}

// showStored prints results that were measured before.
func showStored(files, output string) error {
	var results []result
	for name := range strings.SplitSeq(files, ",") {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		var some []result
		if err := json.Unmarshal(text, &some); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		results = append(results, some...)
	}
	return report(results, output)
}

func report(results []result, output string) error {
	if output == "json" {
		out := json.NewEncoder(os.Stdout)
		out.SetIndent("", "  ")
		return out.Encode(results)
	}
	return show(os.Stdout, results)
}

// measureInside runs one measurement in this process and prints its result for
// the parent.
func measureInside(o options, name string, timeout time.Duration) error {
	if err := checkInside(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	m, err := parseMeasurement(name)
	if err != nil {
		return err
	}
	r := result{Name: name, Load: loadAverage()}
	if err := m.run(ctx, o, &r); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}
