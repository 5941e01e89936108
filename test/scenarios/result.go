package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// The outcomes of a scenario. One that does not apply to a mode, or needs what
// this machine does not have, is played elsewhere.
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

// printTable prints each result as a line; on a terminal, failures stand out.
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
