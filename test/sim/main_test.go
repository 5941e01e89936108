// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain collects garbage less often. A simulation produces much garbage and keeps little, and spent a third of its
// time on the collection.
func TestMain(m *testing.M) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	os.Exit(m.Run())
}
