package e2e

import (
	"testing"

	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

// inEachMode runs a test once in each mode of the proxy, each in a cluster of its own and side by side.
func inEachMode(t *testing.T, test func(*testing.T, harness.Mode)) {
	t.Helper()
	for _, mode := range harness.Modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			test(t, mode)
		})
	}
}
