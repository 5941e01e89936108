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
	// connections. BusyNode is that of the whole machine, with what opens the connections.
	RestCPU, BusyCPU, BusyNode float64
	// Resident and Peak are those of the process, Kernel is by how much the kernel's memory for objects and for
	// counters (Slab, Percpu) has grown, in MiB.
	Resident, Peak, Kernel float64
}

// NodeTable has a row for each measurement.
func NodeTable(costs []NodeCost) rig.Table {
	t := rig.Table{Head: []string{"", "Services", "open", "new/s", "CPU at rest", "CPU", "CPU of the machine", "resident", "peak", "kernel"}}
	cpu := func(ms float64) string { return fmt.Sprintf("%.2f %%", ms/10) }
	memory := func(mib float64) string { return fmt.Sprintf("%.1f MiB", mib) }
	for _, c := range costs {
		t.Add(c.Variant, fmt.Sprintf("%d × %d", c.Services, c.Endpoints), fmt.Sprint(c.Open), fmt.Sprintf("%.0f", c.PerSecond),
			cpu(c.RestCPU), cpu(c.BusyCPU), cpu(c.BusyNode), memory(c.Resident), memory(c.Peak), memory(c.Kernel))
	}
	return t
}
