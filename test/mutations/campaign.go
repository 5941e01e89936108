// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// harness is what runs a campaign.
type harness string

const (
	unit      harness = "unit"      // tests of a package
	sim       harness = "sim"       // tests of the simulation
	scenarios harness = "scenarios" // scenarios, played by the real program
	faulty    harness = "campaign"  // test/campaign, with the real program
)

// campaign is what may find a defect.
type campaign struct {
	harness harness
	name    string
	// pkg has the tests, and tests is a regular expression of their names. Of scenarios, pkg is the
	// mode, and tests are numbers, separated by spaces: the first passes all the same, which proves
	// that the build is not simply broken, and all others fail. Of test/campaign, pkg is the mode.
	pkg, tests string
}

const simulation = "simulation"

// inMemory are the campaigns without a real kernel: random scenarios, and then the stories that
// are known.
var inMemory = []campaign{
	{sim, simulation, "./test/sim", "^TestSimulation$"},
	{sim, "scenarios that failed once", "./test/sim", "^(TestRegressions|TestTakeover_FormerRelease|TestRestart_NoLossBesideRejected)$"},
	{sim, "stories of the simulation", "./test/sim", "^Test"},
}

// runner runs campaigns, each for a number of seeds and for a time.
type runner struct {
	seeds int
	limit time.Duration
	// campaigns chooses by name; nil chooses all.
	campaigns *regexp.Regexp
	// clean is a directory for builds without a defect.
	clean string
}

var (
	failedSeed = regexp.MustCompile(`seed (\d+)(?: fails; [^:]*)?: (.*)`)
	failedTest = regexp.MustCompile(`^\s*--- FAIL: (\S+)`)
	runTest    = regexp.MustCompile(`^=== (?:RUN|CONT|NAME) +(\S+)`)
	atLine     = regexp.MustCompile(`^\s+\S+_test\.go:\d+: (.*)`)
	crash      = regexp.MustCompile(`^(?:panic|fatal error): (.*)`)
)

// run runs a campaign until its first failure. It returns the seed or the test that failed and the
// first line of what it says; nothing if all passed in time.
func (r *runner) run(ctx context.Context, c campaign, binary string, env ...string) (where, what string, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	args := []string{"-test.v", "-test.timeout=0", "-test.run=" + c.tests}
	if c.name != simulation && c.pkg == "./test/sim" {
		args = append(args, "-test.skip=^TestSimulation")
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = c.pkg
	cmd.Env = append(append(os.Environ(), fmt.Sprintf("SLUICE_SIM_SEEDS=%d", r.seeds), "SLUICE_TEST_PATIENCE=30s"), env...)
	printed, err := cmd.StdoutPipe()
	if err != nil {
		return "", "", err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return "", "", err
	}
	where, what = firstFailure(printed)
	if what != "" {
		cancel() // it may have much more to say
	}
	err = cmd.Wait()
	switch {
	case what != "" || ctx.Err() != nil:
		return where, what, nil
	case err != nil:
		return "", "", fmt.Errorf("%s ends with %w and names no test", c.name, err)
	}
	return "", "", nil
}

// firstFailure reads what tests print until one fails.
func firstFailure(printed io.Reader) (where, what string) {
	lines := bufio.NewScanner(printed)
	lines.Buffer(nil, 1<<20)
	test, line := "", ""
	for lines.Scan() {
		text := lines.Text()
		if m := failedSeed.FindStringSubmatch(text); m != nil {
			return "seed " + m[1], m[2]
		}
		if m := crash.FindStringSubmatch(text); m != nil {
			return test, strings.TrimSpace(m[0])
		}
		if m := runTest.FindStringSubmatch(text); m != nil {
			test = m[1]
		}
		if m := atLine.FindStringSubmatch(text); m != nil {
			line = m[1]
		}
		if m := failedTest.FindStringSubmatch(text); m != nil {
			return m[1], cmp.Or(line, "it fails")
		}
	}
	return "", ""
}
