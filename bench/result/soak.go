package result

import (
	"fmt"
	"io"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// Soak is a run of bench/compare -soak: one process of Sluice under steady load and faults.
type Soak struct {
	Services, Endpoints int
	Mix                 map[string]int
	// Seconds is how long changes were made, ChangesPerSecond how many.
	Seconds, ChangesPerSecond float64
	// Refused counts the changes that the API server did not take.
	Refused int `json:",omitempty"`
	// Restarts are those of the API server, HandOvers the changes of the configuration.
	Restarts, HandOvers int
	// Attempted and Lost count the exchanges of the clients.
	Attempted, Lost int
	// Incomplete says why something is missing.
	Incomplete string `json:",omitempty"`

	// Samples are taken while everything goes on; Quiet at rest, after a garbage collection: after the
	// first minute and at the end.
	Samples, Quiet []Sample
	Latency        []Distribution
	Checks         []Check
}

// Sample is what one process has at one moment, and the kernel for it.
type Sample struct {
	Seconds                       float64
	ResidentMiB, ProportionMiB    float64
	HeapMiB, HeapSysMiB           float64
	Goroutines, Descriptors       int
	Conntrack                     int
	Processor                     float64
	Chains, Rules, Sets, Elements int `json:",omitempty"`
}

// Check is one figure, whether it stayed what it was.
type Check struct {
	What, First, Last string
	// Allowed is the tolerance.
	Allowed string
	OK      bool
}

// Table returns the checks as a table.
func (s *Soak) Table() rig.Table {
	t := rig.Table{Head: []string{"", "after the first minute", "at the end", "allowed", ""}}
	for _, c := range s.Checks {
		verdict := "ok"
		if !c.OK {
			verdict = "MISSED"
		}
		t.Rows = append(t.Rows, []string{c.What, c.First, c.Last, c.Allowed, verdict})
	}
	return t
}

// Print prints what happened, and the table.
func (s *Soak) Print(out io.Writer) error {
	if _, err := fmt.Fprintf(out, "%d Services, %.0f s, %.1f changes/s, %d restarts of the API server, %d hand-overs; %d exchanges, %d lost\n",
		s.Services, s.Seconds, s.ChangesPerSecond, s.Restarts, s.HandOvers, s.Attempted, s.Lost); err != nil {
		return err
	}
	for _, d := range s.Latency {
		if len(d.Percentiles) > 99 {
			if _, err := fmt.Fprintf(out, "%s, %s: p50 %.0f ms, p99 %.0f ms\n", d.What, d.Step, d.Percentiles[50], d.Percentiles[99]); err != nil {
				return err
			}
		}
	}
	return s.Table().Print(out)
}
