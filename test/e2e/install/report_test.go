// SPDX-License-Identifier: Apache-2.0

//go:build install

package install

import (
	"errors"
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
	r := &report{t: t, lines: []string{t.Name()}}
	t.Cleanup(func() {
		text := strings.Join(r.lines, "\n") + "\n"
		t.Logf("\n%s", text)
		if file := os.Getenv(envReport); file != "" {
			if err := appendTo(file, text); err != nil {
				t.Error(err)
			}
		}
	})
	return r
}

// appendTo adds to a file, which the tests of this package share.
func appendTo(name, text string) error {
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}

// step runs one part of the test and ends the test if it fails.
func (r *report) step(name string, f func(*testing.T)) {
	r.t.Helper()
	passed := false
	defer r.begin(name, &passed)()
	if passed = r.t.Run(name, f); !passed {
		r.t.FailNow()
	}
}

// prepare is step for what lives until the end of the test.
func (r *report) prepare(name string, f func(*testing.T)) {
	r.t.Helper()
	passed := false
	defer r.begin(name, &passed)()
	f(r.t)
	passed = true
}

// begin reserves the line of a step, which the returned function writes.
func (r *report) begin(name string, passed *bool) (end func()) {
	began, at := time.Now(), len(r.lines)
	r.lines = append(r.lines, "")
	return func() {
		word := map[bool]string{true: "passed", false: "FAILED"}[*passed]
		r.lines[at] = fmt.Sprintf("  %6.1f s  %s  %s", time.Since(began).Seconds(), word, name)
	}
}

// count adds a line about the present step.
func (r *report) count(format string, args ...any) {
	r.lines = append(r.lines, "            "+fmt.Sprintf(format, args...))
}
