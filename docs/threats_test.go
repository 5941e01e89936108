// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// threatModel is the page whose rows findings and tests refer to by number.
const threatModel = "../docs/threat-model.md"

var (
	threatRow = regexp.MustCompile(`^\| ([A-Z])(\d+) \|`)
	// threatNumber is a number in a text that refers to a row.
	threatNumber = regexp.MustCompile(`\b[TPLNOAS]\d+\b`)
	// threatQuote is a reference in a comment or on another page.
	threatQuote = regexp.MustCompile(`threat-model\.md\)?,? (?:[TPLNOAS]\d+(?:, | and )?)+`)
)

// TestThreats_Numbering checks that each row of the threat model has the next number of its actor and fills each column,
// and that every reference is to an existing row.
func TestThreats_Numbering(t *testing.T) {
	page := read(t, threatModel)
	var numbers []string
	last := map[string]int{}
	for line := range strings.Lines(page) {
		match := threatRow.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		last[match[1]]++
		if want := fmt.Sprint(last[match[1]]); match[2] != want {
			t.Errorf("%s%s: want %s%s; numbers are stable, and a row that no longer applies says so", match[1], match[2], match[1], want)
		}
		numbers = append(numbers, match[1]+match[2])
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 6 || slices.ContainsFunc(cells, func(cell string) bool { return strings.TrimSpace(cell) == "" }) {
			t.Errorf("%s: %d columns, want 6 with text", numbers[len(numbers)-1], len(cells))
		}
		if !strings.Contains(page, "("+match[1]+") | ") {
			t.Errorf("no actor has the letter %s", match[1])
		}
	}
	if len(numbers) < 45 {
		t.Fatalf("%d rows: the search for them is broken", len(numbers))
	}
	check := func(where, text string) {
		for _, number := range threatNumber.FindAllString(text, -1) {
			if !slices.Contains(numbers, number) {
				t.Errorf("%s refers to %s, which the threat model does not contain", where, number)
			}
		}
	}
	check(threatModel, outsideProse.ReplaceAllString(page, " "))
	for _, file := range append(markdown(t), tracked(t, ".go")...) {
		for _, quote := range threatQuote.FindAllString(read(t, file), -1) {
			check(file, quote)
		}
	}
}
