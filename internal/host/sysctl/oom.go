package sysctl

import "strconv"

// AdjustOOMScore sets how likely the kernel is to kill this process when memory
// runs out, from -1000 (never) to 1000. It tries twice. A proxy runs on without it. There
// is nothing to put back, since it goes with the process.
func (f Files) AdjustOOMScore(score int) error {
	own := entry{"proc/self/oom_score_adj",
		"lowering it takes CAP_SYS_RESOURCE; without it the process is killed like any other (oomScoreAdj, --oom-score-adj)"}
	f.Record = nil
	_, _, err := f.ensure(own, strconv.Itoa(score))
	if err != nil {
		_, _, err = f.ensure(own, strconv.Itoa(score))
	}
	return err
}
