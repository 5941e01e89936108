package generate

import (
	"fmt"
	"slices"
	"strings"

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

// scenario gives lines the form of a scenario.
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

// Scenario makes the scenario of a seed for a mode. The same seed gives the same
// text, as long as this package and the reference stay as they are.
func Scenario(seed uint64, mode string) (script.Scenario, error) {
	d := newDice(seed, mode).draft()
	s, err := d.annotate()
	if err != nil {
		return s, fmt.Errorf("seed %d: %w", seed, err)
	}
	return s, nil
}

// without gives a draft without the lines from..to.
func (d draft) without(from, to int) draft {
	d.lines = slices.Delete(slices.Clone(d.lines), from, to)
	return d
}
