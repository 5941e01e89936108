package inspect

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// table prints rows in columns. It remembers the first error of the writer.
type table struct {
	columns *tabwriter.Writer
}

func newTable(to io.Writer, heads ...string) *table {
	t := &table{columns: tabwriter.NewWriter(to, 0, 8, 3, ' ', 0)}
	if len(heads) > 0 {
		t.row(heads...)
	}
	return t
}

// row adds a row. An empty cell is shown as "-", except for the last.
func (t *table) row(cells ...string) {
	if last := len(cells) - 1; cells[last] == "" {
		cells = cells[:last]
	}
	for i, cell := range cells {
		if cell == "" {
			cells[i] = "-"
		}
	}
	_, _ = fmt.Fprintln(t.columns, strings.Join(cells, "\t")) // Flush returns the error
}

func (t *table) end() error { return t.columns.Flush() }

// Table prints a table with heads.
func Table(to io.Writer, heads []string, rows [][]string) error {
	t := newTable(to, heads...)
	for _, row := range rows {
		t.row(row...)
	}
	return t.end()
}

// Age returns how long ago something was, for tables of other packages.
func Age(now, then time.Time) string { return age(now, then) }

// age returns how long ago something was, as kubectl writes it.
func age(now, then time.Time) string {
	if then.IsZero() {
		return "-"
	}
	return span(now.Sub(then))
}

// span returns a duration with one or two units.
func span(d time.Duration) string {
	d = max(0, d)
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 10*time.Minute:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 3*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 2*day:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d/day))
	}
}

// micros returns a number of microseconds with a unit that suits it.
func micros(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprintf("%dµs", n)
	case n < 10_000_000:
		return fmt.Sprintf("%.1fms", float64(n)/1e3)
	default:
		return span(time.Duration(n) * time.Microsecond)
	}
}

func microsOf(n *int64) string {
	if n == nil {
		return ""
	}
	return micros(*n)
}

// shortened returns the first texts and the number of the others.
func shortened(all []string, most int) string {
	if len(all) <= most {
		return strings.Join(all, ",")
	}
	return fmt.Sprintf("%s +%d more", strings.Join(all[:most], ","), len(all)-most)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
