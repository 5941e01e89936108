package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// restarted compares restarts, which find their own rules, with the cold start that wrote them.
type restarted struct {
	Cold     *coldStart
	Restarts []*coldStart
	// Ratio is the median time of the restarts to everything verified, over that of the cold start.
	Ratio float64
}

// restartRounds is the number of restarts. The cold start and each restart run in separate processes.
const restartRounds = 3

// measureRestart starts a proxy several times in this namespace, which is empty at first.
func measureRestart(ctx context.Context, m measurement, r *result) error {
	start := measurement{kind: "cold", size: m.size, endpoints: m.endpoints}
	cold, err := startInside(ctx, start.String())
	if err != nil {
		return err
	}
	all := &restarted{Cold: cold}
	var took []time.Duration
	for range restartRounds {
		again, err := startInside(ctx, start.String())
		if err != nil {
			return err
		}
		if again.Objects > 0 {
			return fmt.Errorf("a restart with nothing changed wrote %d objects", again.Objects)
		}
		all.Restarts = append(all.Restarts, again)
		took = append(took, again.Programmed)
	}
	all.Ratio = float64(rig.Percentile(took, 50)) / float64(cold.Programmed)
	r.Restart = all
	return nil
}

// usedNow returns the CPU time of this process.
func usedNow() rig.CPU { return rig.UsedHere(unix.RUSAGE_SELF) }

func restarts(results []result) rig.Table {
	t := table("start; reduced; rendered; applied; reading; objects written; CPU time; of that system; ratio")
	for _, r := range results {
		if r.Restart == nil {
			continue
		}
		for i, c := range append([]*coldStart{r.Restart.Cold}, r.Restart.Restarts...) {
			row(&t, c.size()+[]string{", cold", ", restart"}[min(i, 1)], c.Listed, c.Rendered, c.Programmed,
				c.Reading, c.Objects, c.Processor, c.System, float64(c.Programmed)/float64(r.Restart.Cold.Programmed))
		}
	}
	return t
}
