package daemon

import (
	"os"
	"runtime/debug"
)

// garbagePercent is how much garbage may gather before it is collected, in percent of what
// lives. Go's default is 100. A proxy allocates little but for its start, so collecting
// twice as often costs a few milliseconds of processor time per second at 100 changes per
// second, and saves a quarter of the memory (docs/design/process.md).
const garbagePercent = 50

// limitGarbage sets garbagePercent unless the environment says otherwise.
func limitGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
}
