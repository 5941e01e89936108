// SPDX-License-Identifier: Apache-2.0

package state

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestState_OrderedByGravity: Graver orders the states from applied to held because of a failing actor.
func TestState_OrderedByGravity(t *testing.T) {
	order := []State{Applied, TooLarge, Pending, Shadowed, Rejected, Failing}
	for i, graver := range order {
		for j, other := range order {
			if graver.Graver(other) != (i > j) {
				t.Errorf("%s is graver than %s: %t", graver, other, i <= j)
			}
		}
	}
	if len(ranks) != len(order)+2 || State("").Graver(Applied) {
		t.Errorf("%d states have a rank, want %d", len(ranks), len(order)+2)
	}
}

// TestRecord_PublicFieldsOnly: the JSON of a record has exactly the public fields, so that a new field is not published
// by accident.
func TestRecord_PublicFieldsOnly(t *testing.T) {
	n := int64(1)
	text, err := json.Marshal(Record{Draining: 1, LastChange: time.Unix(1, 0), LastMicros: &n, LongestMicros: &n,
		CauseLastMicros: &n, CauseLongestMicros: &n, FlowsDeleted: 1, Shadowed: true, Quarantines: []Quarantine{{Domain: "d"}}})
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	want := []string{"changes", "drainingEndpoints", "endpoints", "lastChange", "lastMicros", "localEndpoints", "longestMicros", "restarts", "state"}
	if !slices.Equal(names, want) {
		t.Errorf("fields %q, want %q", names, want)
	}
}

func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "",
		"one line":                     "one line",
		"\n two\r\n\t lines \n":        "two lines",
		"broken \xff text":             "broken ? text",
		strings.Repeat("a", lineMax):   strings.Repeat("a", lineMax),
		strings.Repeat("ä", lineMax):   strings.Repeat("ä", (lineMax-3)/2) + "…",
		"x" + strings.Repeat("ä", 999): "x" + strings.Repeat("ä", (lineMax-4)/2) + "…",
	} {
		if got := OneLine(text); got != want || !utf8.ValidString(got) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
