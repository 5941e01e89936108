// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/internal/terminal"
	"github.com/sluice-proxy/sluice/observe/state"
)

// page is the page of an Output. It filters, sorts and colors the rows of tables as the Output specifies.
type page struct {
	terminal.Page
	out *Output
	// order has the positions of the rows of a sorted table.
	order []int
	// only has the rows to print; nil means all.
	only map[int]bool
	// seen is called with each table.
	seen func(heads []string, rows [][]string)
	// heads counts the tables with heads, rows their rows, and others the rows of the other tables.
	heads, rows, others int
}

func newPage(out *Output) *page {
	p := &page{out: out}
	p.Wide, p.Plain, p.Arrange, p.Paint = out.Wide(), out.NoHeaders || out.SortBy != "", p.arrange, p.color
	return p
}

// empty reports whether the page has no text, or has tables with headers but no rows in them.
func (p *page) empty() bool { return p.Len() == 0 || p.heads > 0 && p.rows == 0 }

// arrange returns the lines of a table.
func (p *page) arrange(heads []string, rows [][]string) (lines [][]string) {
	if p.seen != nil {
		p.seen(heads, rows)
	}
	if len(heads) == 0 {
		p.others += len(rows)
		return rows
	}
	if p.heads, p.rows = p.heads+1, p.rows+len(rows); len(rows) == 0 {
		return nil
	}
	if !p.out.NoHeaders {
		lines = append(lines, heads)
	}
	for i := range rows {
		if len(p.order) == len(rows) {
			i = p.order[i]
		}
		if p.only == nil || p.only[i] {
			lines = append(lines, rows[i])
		}
	}
	return lines
}

// UsageError is an error in a command line or in settings, which the user can correct.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e UsageError) Unwrap() error { return e.Err }

// Misused returns a UsageError.
func Misused(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// sort sorts the items of an object, and remembers the order of the rows for the table.
func (p *page) sort(object map[string]any, answer Answer) error {
	field, items := listIn(object)
	var keys, known []string
	by := p.out.SortBy
	find := newPage(&Output{Format: "wide"}) // the user can also sort by hidden columns
	find.seen = func(heads []string, rows [][]string) {
		for n, head := range heads {
			head = strings.TrimSpace(head)
			known = append(known, head)
			for i := 0; i < len(rows) && isColumn(head, by); i++ {
				keys = append(keys, rows[i][min(n, len(rows[i])-1)])
			}
		}
	}
	answer.Print(&find.Page)
	if !slices.ContainsFunc(known, func(head string) bool { return isColumn(head, by) }) {
		return Misused("--sort-by %q: must be a column: %s", by, strings.Join(known, ", "))
	}
	for i := range keys {
		p.order = append(p.order, i)
	}
	slices.SortStableFunc(p.order, func(a, b int) int {
		if p.out.Reverse {
			a, b = b, a
		}
		return compareCells(keys[a], keys[b])
	})
	if field != "" && len(items) == len(keys) {
		sorted := make([]any, len(items))
		for i, at := range p.order {
			sorted[i] = items[at]
		}
		object[field] = sorted
	}
	return nil
}

// isColumn reports whether the value of --sort-by means a column: case does not matter, and "-" stands for a space.
func isColumn(head, by string) bool {
	return strings.EqualFold(head, by) || strings.EqualFold(strings.ReplaceAll(head, " ", "-"), by)
}

// compareCells sorts numbers first, in descending order, and then texts.
func compareCells(a, b string) int {
	x, xIs := amountIn(a)
	y, yIs := amountIn(b)
	switch {
	case xIs && yIs:
		return cmp.Compare(y, x)
	case xIs:
		return -1
	case yIs:
		return 1
	}
	return strings.Compare(a, b)
}

// amountIn reads a number, a size such as 18.2k, or a duration, in seconds.
func amountIn(text string) (amount float64, is bool) {
	unit := map[string]float64{"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "d": 24 * 3600}
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return n, true
	}
	if d, err := time.ParseDuration(text); err == nil {
		return d.Seconds(), true
	}
	if last := len(text) - 1; last > 0 && unit[text[last:]] > 0 {
		n, err := strconv.ParseFloat(text[:last], 64)
		return n * unit[text[last:]], err == nil
	}
	return 0, false
}

// colors maps states without their reasons to green, yellow and red.
var colors = map[string]string{
	string(state.Applied): "32", string(state.Pending): "33", string(state.Shadowed): "33", string(state.Held): "31",
}

func (p *page) color(cell string) string {
	code := colors[string(state.State(cell).Class())]
	if !p.out.Color || code == "" {
		return cell
	}
	return "\x1b[" + code + "m" + cell + "\x1b[0m"
}
