// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Table is printed as aligned Markdown: for a terminal, and for a page of docs.
type Table struct {
	Head []string
	Rows [][]string
}

// Add adds a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Print prints the first column aligned to the left, and the others to the right. It prints nothing for a table without
// rows.
func (t Table) Print(out io.Writer) error {
	if len(t.Rows) == 0 {
		return nil
	}
	width := make([]int, len(t.Head))
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell), 3)
		}
	}
	var b strings.Builder
	line := func(cell func(i int) string) {
		for i := range t.Head {
			text := cell(i)
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(text))
			if i == 0 {
				text, pad = text+pad, ""
			}
			b.WriteString("| " + pad + text + " ")
		}
		b.WriteString("|\n")
	}
	line(func(i int) string { return t.Head[i] })
	line(func(i int) string {
		if i == 0 {
			return strings.Repeat("-", width[i])
		}
		return strings.Repeat("-", width[i]-1) + ":"
	})
	for _, row := range t.Rows {
		line(func(i int) string { return row[i] })
	}
	_, err := fmt.Fprintln(out, b.String())
	return err
}
