// SPDX-License-Identifier: Apache-2.0

// Package generate makes scenarios up. A seed decides which Services, slices and
// node facts there are, how they change, and what is asked at each quiet point;
// package expect says what has to come out. What it makes is the text of a
// scenario, so that a failure is a scenario that anybody can read, shorten and keep:
//
//	draft ──► annotate ──► play ──► fails? ──► shrink ──► a few lines of text
//	 seed     expect        world
//
// A draft has statements and questions without answers. The answers are worked out
// again for each draft, so that a shortened one asks for what is right.
package generate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/scenarios/expect"
	"github.com/sluice-proxy/sluice/test/scenarios/play"
	"github.com/sluice-proxy/sluice/test/scenarios/script"
)

// draft is a scenario whose questions have no answers yet: statements in which a
// question is CLIENT -> TARGET.
type draft struct {
	seed  uint64
	mode  string
	lines []string
}

// arrow stands between the client and the target of a question.
const arrow = " -> "

func isQuestion(line string) bool { return strings.Contains(line, arrow) }

// scenario returns lines the form of a scenario.
func (d draft) scenario(lines []string) (script.Scenario, error) {
	all, err := script.Parse("seed-"+fmt.Sprint(d.seed), d.text(lines))
	if err != nil {
		return script.Scenario{}, err
	}
	return all[0], nil
}

// text is what to put into a file.
func (d draft) text(lines []string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "S-GEN-%d made up from seed %d for mode %s\n    modes %s\n", d.seed, d.seed, d.mode, d.mode)
	for _, line := range lines {
		text.WriteString("    " + line + "\n")
	}
	return text.String()
}

// Text writes a scenario as a file has it.
func Text(s script.Scenario) string {
	var text strings.Builder
	fmt.Fprintln(&text, s.ID, s.Title)
	for _, line := range s.Lines {
		text.WriteString("    " + line.Text + "\n")
	}
	return text.String()
}

// Scenario makes the scenario of a seed for a mode. The same seed makes the same
// text, as long as this package and package expect stay as they are.
func Scenario(seed uint64, mode string) (script.Scenario, error) {
	d := newGenerator(seed, mode).draft()
	s, err := d.annotate()
	if err != nil {
		return s, fmt.Errorf("seed %d: %w", seed, err)
	}
	return s, nil
}

// without returns a draft without the lines from..to.
func (d draft) without(from, to int) draft {
	d.lines = slices.Delete(slices.Clone(d.lines), from, to)
	return d
}

// questionsMax bounds the questions of a scenario.
const questionsMax = 60

// errAsksNothing: the reference answers none of the questions.
var errAsksNothing = errors.New("it asks for nothing that is laid down")

// answers are what the reference says to one question, by family; "" is nothing.
type answers service.PerFamily[string]

// annotate makes a scenario of a draft: it puts the answers of the reference
// behind the questions and drops those without an answer.
func (d draft) annotate() (script.Scenario, error) {
	known, err := d.judge()
	if err != nil {
		return script.Scenario{}, err
	}
	var lines []string
	asked := 0
	for i, line := range d.lines {
		if !isQuestion(line) {
			lines = append(lines, line)
			continue
		}
		if asked == questionsMax {
			continue
		}
		made := known[i].lines(line)
		if len(made) > 0 {
			asked++
		}
		lines = append(lines, made...)
	}
	if asked == 0 {
		return script.Scenario{}, errAsksNothing
	}
	return d.scenario(lines)
}

// lines writes a question with its answers: as one line if both families agree.
func (a answers) lines(question string) []string {
	if a[service.IPv4] == a[service.IPv6] && a[service.IPv4] != "" {
		return []string{question + " => " + a[service.IPv4]}
	}
	var all []string
	for family, prefix := range []string{service.IPv4: "ipv4 ", service.IPv6: "ipv6 "} {
		if a[family] != "" {
			all = append(all, prefix+question+" => "+a[family])
		}
	}
	return all
}

// judge asks the reference about every question of a draft, by its line.
func (d draft) judge() (map[int]answers, error) {
	// Any outcome will do to have the questions understood.
	const anything = " => refused"
	asking := append([]string(nil), d.lines...)
	places := make(map[int]int) // from numbers of lines in the text
	for i, line := range asking {
		const before = 3 // heading, modes, and that numbers begin with 1
		places[i+before] = i
		if isQuestion(line) {
			asking[i] = line + anything
		}
	}
	s, err := d.scenario(asking)
	if err != nil {
		return nil, err
	}
	plan, err := play.NewPlan(s, d.mode)
	if err != nil {
		return nil, err
	}
	state := expect.New(expect.Options{Mode: d.mode, Flags: plan.Flags, PodPort: plan.PodPort})
	known := make(map[int]answers)
	return known, plan.Examine(state, func(q play.Asked) error {
		w, err := state.Judge(q.Question)
		var unsure expect.Unsure
		switch {
		case errors.As(err, &unsure), w.Sticky && len(w.Sources) > 1:
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", q.Line.Text, err)
		}
		at := places[q.Line.Number]
		a := known[at]
		a[q.Family] = w.String()
		known[at] = a
		return nil
	})
}
