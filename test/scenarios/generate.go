// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/sluice-proxy/sluice/test/scenarios/generate"
	"github.com/sluice-proxy/sluice/test/scenarios/play"
	"github.com/sluice-proxy/sluice/test/scenarios/script"
)

// making says which scenarios to generate instead of playing the list.
type making struct {
	// count is the number of scenarios, first the seed of the first one.
	count int
	first uint64
	// attempts bounds how often a failing scenario is played again to shorten it.
	attempts int
}

// made returns the generated scenarios.
func (m making) made(mode string) ([]script.Scenario, error) {
	var all []script.Scenario
	for i := range m.count {
		s, err := generate.Scenario(m.first+uint64(i), mode)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// play plays generated scenarios, and prints a shortened form of each that fails, for a file that
// -file plays.
func (m making) play(ctx context.Context, s suite, out io.Writer, print func(result)) (summary, error) {
	all, err := m.made(s.mode)
	if err != nil {
		return summary{}, err
	}
	var bad []uint64
	at := m.first
	sum, err := s.play(ctx, all, regexp.MustCompile(""), func(r result) {
		if r.Outcome == failed {
			bad = append(bad, at)
		}
		at++
		print(r)
	})
	for _, seed := range bad {
		if err == nil {
			err = m.shorten(ctx, s, seed, out)
		}
	}
	return sum, err
}

// shorten prints the shortened form of a scenario that failed.
func (m making) shorten(ctx context.Context, s suite, seed uint64, out io.Writer) error {
	if s.dir == "" {
		made, err := os.MkdirTemp("", "scenarios-")
		if err != nil {
			return err
		}
		s.dir = made
		defer func() { _ = os.RemoveAll(made) }() // what is left is in no one's way
	}
	fails := func(tried script.Scenario) error {
		plan, err := play.NewPlan(tried, s.mode)
		if err != nil || ctx.Err() != nil {
			return nil // what cannot be played tells nothing
		}
		ctx, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		return s.inWorld(ctx, plan)
	}
	shortest, why, err := generate.Shrink(seed, s.mode, fails, m.attempts)
	if err != nil {
		return err
	}
	if why == nil {
		_, err = fmt.Fprintf(out, "\nSeed %d did not fail when it was played again:\n\n%s", seed, generate.Text(shortest))
		return err
	}
	_, err = fmt.Fprintf(out, "\nSeed %d: %v\n\n%s", seed, why, generate.Text(shortest))
	return err
}

// fromFile reads the scenarios of a file.
func fromFile(name string) ([]script.Scenario, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return script.Parse(name, string(text))
}
