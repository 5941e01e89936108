package main

import (
	"fmt"

	"github.com/sluice-proxy/sluice/bench/result"
)

// fleetNodes is the size of the cluster that the page speaks of, and fleetRate the endpoint changes
// per second in it.
const fleetNodes, fleetRate = 5_000, 10

// fleet says what many nodes like the one measured ask of the API server. It reports false where
// that was not measured.
func fleet(c comparison) (t result.Table, ok bool) {
	t.Head = []string{"", "one node", fmt.Sprintf("%s nodes", grouped(fleetNodes))}
	add := func(what, step, name string, whole func(float64) string) {
		f, found := c.Median(result.Sluice, step, name)
		if !found {
			return
		}
		ok = true
		t.Rows = append(t.Rows, []string{what, f.Text(), whole(f.Value * fleetNodes)})
	}
	gibibytes := func(mib float64) string { return fmt.Sprintf("%.0f GiB", mib/1024) }
	minutes := func(seconds float64) string { return fmt.Sprintf("%.0f min of one processor", seconds/60) }
	add("read at a start, streamed lists", result.FleetStreamed, result.Received, gibibytes)
	add("read at a start, plain lists (compressed)", result.FleetPlain, result.Received, gibibytes)
	add("the API server's processor time for that, streamed", result.FleetStreamed, result.ServerTime, minutes)
	add("the same, plain", result.FleetPlain, result.ServerTime, minutes)
	add("read for one endpoint replaced", result.FleetChange, result.ReceivedEach, func(bytes float64) string {
		return fmt.Sprintf("%.0f MB; at %d/s %.0f Mbit/s", bytes/1e6, fleetRate, bytes*fleetRate*8/1e6)
	})
	add("both ways while nothing changes, per minute", result.FleetIdle, result.ReceivedPerMinute, func(kib float64) string {
		return fmt.Sprintf("%.0f MiB", kib/1024)
	})
	return t, ok
}
