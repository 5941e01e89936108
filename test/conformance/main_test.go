package conformance

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// TestMain runs more tests at once than there are processors: on a real kernel, a case mostly waits
// for silence and for commands.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "12"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
