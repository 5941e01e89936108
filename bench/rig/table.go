package rig

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Table is what is printed on a terminal and on the page alike.
type Table struct {
	Head []string
	Rows [][]string
}

// Add adds a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Print prints the columns aligned: the first to the left, the others to the right. It does not print a
// table without rows.
func (t Table) Print(out io.Writer) error {
	if len(t.Rows) == 0 {
		return nil
	}
	width := make([]int, len(t.Head))
	lines := append([][]string{t.Head}, t.Rows...)
	for _, row := range lines {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range lines {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				line.WriteString(cell + pad)
			} else {
				line.WriteString("  " + pad + cell)
			}
		}
		if _, err := fmt.Fprintln(out, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(out)
	return err
}

// Markdown returns the table as a page has it.
func (t Table) Markdown() string {
	var b strings.Builder
	line := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(t.Head)
	rule := make([]string, len(t.Head))
	for i := range rule {
		if rule[i] = "--:"; i == 0 {
			rule[i] = "---"
		}
	}
	line(rule)
	for _, row := range t.Rows {
		line(row)
	}
	return b.String()
}
