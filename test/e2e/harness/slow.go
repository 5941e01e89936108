package harness

import (
	"os"
	"strconv"
	"time"
)

// Environment variables about the machine that the tests run on.
const (
	// envSlow is a factor for all limits, for a machine that is emulated.
	envSlow = "SLUICE_E2E_SLOW"
	// envModes lists the modes to test, with commas between them.
	envModes = "SLUICE_E2E_MODES"
)

// slow makes a limit as long as it has to be on this machine.
func slow(limit time.Duration) time.Duration {
	if factor, err := strconv.Atoi(os.Getenv(envSlow)); err == nil && factor > 1 {
		return time.Duration(factor) * limit
	}
	return limit
}
