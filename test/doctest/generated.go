// SPDX-License-Identifier: Apache-2.0

package doctest

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Generated compares a generated part of a page with its text of today. The part is between the
// comments "<!-- generated: NAME -->" and "<!-- end of NAME -->", which the page must contain. With
// SLUICE_DOCS=write in the environment, as make docs sets it, Generated writes the part instead.
func Generated(t *testing.T, page, name, text string) {
	t.Helper()
	old, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := fmt.Sprintf("<!-- generated: %s -->\n", name), fmt.Sprintf("<!-- end of %s -->\n", name)
	before, rest, begins := strings.Cut(string(old), begin)
	part, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		t.Fatalf("%s contains no part between %q and %q", page, begin, end)
	}
	text = "\n" + strings.TrimSpace(text) + "\n\n"
	switch {
	case part == text:
	case os.Getenv("SLUICE_DOCS") == "write":
		if err := os.WriteFile(page, []byte(before+begin+text+end+after), 0o644); err != nil { // a page
			t.Fatal(err)
		}
	default:
		t.Errorf("%s: the generated part %q is not up to date; run make docs", page, name)
	}
}

// Table returns a Markdown table. A cell must not contain a line break; Table escapes its bars.
func Table(heading []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) {
		b.WriteString("|")
		for _, cell := range cells {
			if cell != "" {
				b.WriteString(" " + strings.ReplaceAll(cell, "|", `\|`))
			}
			b.WriteString(" |")
		}
		b.WriteString("\n")
	}
	line(heading)
	b.WriteString("|" + strings.Repeat(" --- |", len(heading)) + "\n")
	for _, row := range rows {
		line(row)
	}
	return b.String()
}
