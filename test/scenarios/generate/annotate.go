package generate

import (
	"errors"
	"fmt"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/scenarios/play"
	"github.com/sluice-proxy/sluice/test/scenarios/reference"
	"github.com/sluice-proxy/sluice/test/scenarios/script"
)

// questionsMax bounds the questions of a scenario.
const questionsMax = 60

// errAsksNothing: the reference answers none of the questions.
var errAsksNothing = errors.New("it asks for nothing that is laid down")

// answers are what the reference says to one question, by family; "" is nothing.
type answers service.PerFamily[string]

// annotate makes a scenario of a draft: it puts the answers of the reference
// behind the questions and leaves out those to which there is none.
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
	state := reference.New(reference.Options{Mode: d.mode, Flags: plan.Flags, PodPort: plan.PodPort})
	known := make(map[int]answers)
	return known, plan.Examine(state, func(q play.Asked) error {
		w, err := state.Judge(q.Question)
		var unsure reference.Unsure
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
