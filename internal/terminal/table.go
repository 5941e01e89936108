// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Page collects the output of a command, which then writes everything at once. Printing to it does not fail.
type Page struct {
	bytes.Buffer
	// Wide is set if tables have all columns, and Plain if their rows are sorted or for programs.
	Wide, Plain bool
	// Arrange returns the lines of a table to print, and Paint a cell with its color; nil for tables as they are.
	Arrange func(heads []string, rows [][]string) [][]string
	Paint   func(cell string) string
}

// File returns a writer that is a terminal as a file; nil for other writers.
func File(to io.Writer) *os.File {
	if file, is := to.(*os.File); is && term.IsTerminal(int(file.Fd())) {
		return file
	}
	return nil
}

// Colors reports whether a writer is a terminal that shows colors; see https://no-color.org.
func Colors(to io.Writer) bool {
	return File(to) != nil && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// Say prints a text.
func (p *Page) Say(format string, args ...any) { fmt.Fprintf(p, format, args...) }

// Table prints rows in columns.
type Table struct {
	To    *Page
	Heads []string
	// Gap is the number of spaces between two columns.
	Gap  int
	rows [][]string
}

// NewTable returns a table. Without heads, it has no header line.
func NewTable(to *Page, heads ...string) *Table { return &Table{To: to, Heads: heads, Gap: 3} }

// NarrowTable returns a table with a gap of 2, for long cells.
func NarrowTable(to *Page, heads ...string) *Table { return &Table{To: to, Heads: heads, Gap: 2} }

// Row adds a row. An empty cell is shown as "-", except for the last.
func (t *Table) Row(cells ...string) *Table {
	if last := len(cells) - 1; cells[last] == "" {
		cells = cells[:last]
	}
	for i, cell := range cells {
		if cell == "" {
			cells[i] = "-"
		}
	}
	t.rows = append(t.rows, cells)
	return t
}

// End prints the table.
func (t *Table) End() {
	rows, widths := t.rows, []int{}
	if len(t.Heads) > 0 {
		rows = slices.Concat([][]string{t.Heads}, rows)
	}
	for _, row := range rows {
		for i, cell := range row[:max(0, len(row)-1)] { // nothing follows the last cell
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell)+t.Gap)
		}
	}
	if t.To.Arrange != nil {
		rows = t.To.Arrange(t.Heads, t.rows)
	}
	for _, row := range rows {
		for i, cell := range row {
			gap := ""
			if i < len(row)-1 {
				gap = strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			}
			if t.To.Paint != nil {
				cell = t.To.Paint(cell)
			}
			t.To.WriteString(cell + gap)
		}
		t.To.WriteByte('\n')
	}
}
