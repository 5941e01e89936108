package inspect

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// table prints rows in columns. On a page it obeys the flags of the command; see Output.
type table struct {
	to    io.Writer
	heads []string
	rows  [][]string
}

func newTable(to io.Writer, heads ...string) *table { return &table{to: to, heads: heads} }

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
	t.rows = append(t.rows, cells)
}

// end writes the table.
func (t *table) end() error {
	rows, widths := t.rows, []int{}
	if len(t.heads) > 0 {
		rows = slices.Concat([][]string{t.heads}, rows)
	}
	for _, row := range rows {
		for i, cell := range row[:max(0, len(row)-1)] { // nothing follows the last cell
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell)+columnGap)
		}
	}
	color := func(cell string) string { return cell }
	if p, ok := t.to.(*page); ok {
		rows, color = p.arrange(t.heads, t.rows), p.color
	}
	var text strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			text.WriteString(color(cell))
			if i < len(row)-1 {
				text.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)))
			}
		}
		text.WriteByte('\n')
	}
	_, err := io.WriteString(t.to, text.String())
	return err
}

// columnGap is the number of spaces between two columns.
const columnGap = 3

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

// Micros returns a number of microseconds with a unit that suits it, in three digits.
func Micros(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%dµs", n)
	case n < 999_500:
		return threeDigits(float64(n)/1e3) + "ms"
	case n < 99_500_000:
		return threeDigits(float64(n)/1e6) + "s"
	default:
		return span(time.Duration(n) * time.Microsecond)
	}
}

func threeDigits(x float64) string {
	decimals := 0
	for limit := 99.95; decimals < 2 && x < limit; limit = 9.995 {
		decimals++
	}
	return strconv.FormatFloat(x, 'f', decimals, 64)
}

func microsOf(n *int64) string {
	if n == nil {
		return ""
	}
	return Micros(*n)
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
