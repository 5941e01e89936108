// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/term"

	"github.com/sluice-proxy/sluice/test/scenarios/explained"
	"github.com/sluice-proxy/sluice/test/scenarios/network"
	"github.com/sluice-proxy/sluice/test/scenarios/play"
	"github.com/sluice-proxy/sluice/test/scenarios/script"
)

// suite plays scenarios in one mode.
type suite struct {
	mode, variant, binary, dir string
	workers                    int
	timeout                    time.Duration
	// flags are flags of all proxies. Those of a scenario count more.
	flags map[string]string
	// compared counts the answers that are compared with those of package explain; nil if none is.
	compared *explained.Counts
}

// play plays the matching scenarios, several at a time, and prints each result in the order of the
// list.
func (s suite) play(ctx context.Context, all []script.Scenario, only *regexp.Regexp, print func(result)) (summary, error) {
	var sum summary
	var plans []*play.Plan
	for _, scenario := range all {
		plan, err := play.NewPlan(scenario, s.mode)
		if err != nil {
			return sum, err
		}
		if only.MatchString(plan.ID) {
			plans = append(plans, plan)
		}
	}
	if len(plans) == 0 {
		return sum, errors.New("no scenario has a matching number")
	}
	if s.dir == "" {
		made, err := os.MkdirTemp("", "scenarios-")
		if err != nil {
			return sum, err
		}
		s.dir = made
		defer func() {
			if sum.failed == 0 {
				_ = os.RemoveAll(made) // what is left is in no one's way
			}
		}()
	}
	results := make([]chan result, len(plans))
	for i := range results {
		results[i] = make(chan result, 1)
	}
	var group errgroup.Group
	group.SetLimit(s.workers)
	go func() {
		for i, plan := range plans {
			group.Go(func() error { results[i] <- s.one(ctx, plan); return nil })
		}
	}()
	for i := range plans {
		r := <-results[i]
		sum.add(r)
		print(r)
	}
	return sum, ctx.Err()
}

// one plays one scenario in a separate world.
func (s suite) one(ctx context.Context, plan *play.Plan) result {
	r := result{ID: plan.ID, Title: plan.Title, Differs: plan.Differs}
	if reason := s.notHere(plan); reason != "" {
		r.Outcome, r.Reason = elsewhere, reason
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	start := time.Now()
	err := s.inWorld(ctx, plan)
	r.Seconds = time.Since(start).Seconds()
	if r.Outcome = passed; err != nil {
		r.Outcome, r.Reason = failed, fmt.Sprintf("%v (logs: %s)", err, s.logs(plan))
	}
	return r
}

// notHere returns why a scenario is not played here, or "".
func (s suite) notHere(plan *play.Plan) string {
	if plan.Cannot != "" {
		return plan.Cannot
	}
	if !plan.Applies {
		return "is about " + strings.Join(plan.Modes, " and ") + " alone"
	}
	for _, feature := range plan.Needs {
		if err := network.Has(feature); err != nil {
			return err.Error()
		}
	}
	return ""
}

func (s suite) logs(plan *play.Plan) string { return filepath.Join(s.dir, s.mode+s.variant, plan.ID) }

func (s suite) inWorld(ctx context.Context, plan *play.Plan) (err error) {
	dir := s.logs(plan)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	flags := maps.Clone(s.flags)
	maps.Copy(flags, plan.Flags)
	world, err := network.NewWorld(network.Options{
		Binary: s.binary, Mode: s.mode, Variant: s.variant, Dir: dir, PodPort: plan.PodPort, Flags: flags,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, world.Close()) }()
	if s.compared == nil {
		return plan.Play(ctx, world, world.API)
	}
	compare := &explained.Comparison{
		World: world, PodPort: plan.PodPort, OthersDrop: plan.Says("policy"), Counts: s.compared,
	}
	plan.Compare = compare.Compare
	err = plan.Play(ctx, world, world.API)
	s.compared.Note(err)
	return err
}

// The outcomes of a scenario. One that does not apply to a mode, or needs what this machine does
// not have, is played elsewhere.
const (
	passed    = "passed"
	failed    = "FAILED"
	elsewhere = "elsewhere"
)

// result is one line of the table.
type result struct {
	ID      string   `json:"id"`
	Title   string   `json:"title"`
	Outcome string   `json:"outcome"`
	Seconds float64  `json:"seconds"`
	Reason  string   `json:"reason,omitempty"`
	Differs []string `json:"differs,omitempty"`
}

// summary counts results.
type summary struct{ passed, failed, elsewhere, differ int }

func (s *summary) add(r result) {
	switch r.Outcome {
	case passed:
		s.passed++
	case failed:
		s.failed++
	default:
		s.elsewhere++
	}
	if len(r.Differs) > 0 && r.Outcome != elsewhere {
		s.differ++
	}
}

// String is the last line.
func (s summary) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d played elsewhere; %d differ from kube-proxy on purpose", s.passed, s.failed, s.elsewhere, s.differ)
}

// printTable prints each result as a line. On a terminal, failures are red.
func printTable(mode string) func(result) {
	red, plain := "", ""
	if term.IsTerminal(int(os.Stdout.Fd())) {
		red, plain = "\033[1;31m", "\033[0m"
	}
	fmt.Printf("%-10s %-9s %6s  %s\n", "ID", mode, "TIME", "SCENARIO")
	return func(r result) {
		color := ""
		if r.Outcome == failed {
			color = red
		}
		fmt.Printf("%s%-10s %-9s %5.1fs%s  %s\n", color, r.ID, r.Outcome, r.Seconds, plain, r.Title)
		for _, note := range append(r.Differs, strings.Split(r.Reason, "\n")...) {
			if note != "" {
				fmt.Printf("%29s %s\n", "", note)
			}
		}
	}
}
