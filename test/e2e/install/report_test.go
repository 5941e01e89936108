//go:build install

package install

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// envReport names a file for the report, which hack/test-install prints.
const envReport = "SLUICE_INSTALL_REPORT"

// report is what a person sees at the end: how long each step took, and what was counted.
type report struct {
	t     *testing.T
	lines []string
}

func newReport(t *testing.T) *report {
	r := &report{t: t}
	t.Cleanup(func() {
		text := strings.Join(r.lines, "\n") + "\n"
		t.Logf("\n%s", text)
		if file := os.Getenv(envReport); file != "" {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Error(err)
			}
		}
	})
	return r
}

// step runs one part of the test and ends the test if it fails.
func (r *report) step(name string, f func(*testing.T)) {
	r.t.Helper()
	began := time.Now()
	passed := r.t.Run(name, f)
	word := map[bool]string{true: "passed", false: "FAILED"}[passed]
	r.lines = append(r.lines, fmt.Sprintf("  %6.1f s  %s  %s", time.Since(began).Seconds(), word, name))
	if !passed {
		r.t.FailNow()
	}
}

// count adds a line about the last step.
func (r *report) count(format string, args ...any) {
	r.lines = append(r.lines, "            "+fmt.Sprintf(format, args...))
}
