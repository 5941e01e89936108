// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// restartRounds is the number of restarts. The cold start and each restart run in separate processes.
const restartRounds = 3

// measureRestart starts a proxy several times in this namespace, which is empty at first.
func measureRestart(ctx context.Context, m measurement, r *result) error {
	start := measurement{kind: "cold", size: m.size, endpoints: m.endpoints}
	for round := range 1 + restartRounds {
		c, err := startInside(ctx, start.String())
		if err != nil {
			return err
		}
		if round > 0 && c.Objects > 0 {
			return fmt.Errorf("a restart with nothing changed wrote %d objects", c.Objects)
		}
		r.Restart = append(r.Restart, c)
	}
	return nil
}

// usedNow returns the CPU time of this process.
func usedNow() rig.CPU { return rig.UsedHere(unix.RUSAGE_SELF) }
