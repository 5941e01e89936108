package result

import (
	"fmt"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// NodeCost is what a running proxy costs a node.
type NodeCost struct {
	Variant             string
	Services, Endpoints int
	// Open connections existed, and PerSecond were opened and closed.
	Open      int
	PerSecond float64
	// RestCPU and BusyCPU are milliseconds of CPU time of the process per second, without and with new
	// connections.
	RestCPU, BusyCPU float64
	// Resident and Peak are those of the process, in MiB.
	Resident, Peak float64
}

// NodeTable has a row for each measurement.
func NodeTable(costs []NodeCost) rig.Table {
	t := rig.Table{Head: []string{"", "CPU at rest", "CPU", "resident", "peak"}}
	cpu := func(ms float64) string { return fmt.Sprintf("%.2f%%", ms/10) }
	memory := func(mib float64) string { return fmt.Sprintf("%.0f MiB", mib) }
	for _, c := range costs {
		t.Add(c.Variant, cpu(c.RestCPU), cpu(c.BusyCPU), memory(c.Resident), memory(c.Peak))
	}
	return t
}
