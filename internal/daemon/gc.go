// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"runtime/debug"
)

// garbagePercent is how much garbage may accumulate before a collection, in percent of the live heap. Go's default is
// 100. A proxy allocates little except at startup, so collecting twice as often costs a few milliseconds of CPU time
// per second at 100 changes per second, and saves a quarter of the memory (docs/design/process.md).
const garbagePercent = 50

// limitGarbage sets garbagePercent unless the environment sets GOGC.
func limitGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
}
