// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"io"
	"time"

	"github.com/sluice-proxy/sluice/internal/terminal"
)

// How long a reader on a terminal needs for a heading with its explanation, and for a line.
const (
	headingTime = 1300 * time.Millisecond
	lineTime    = 250 * time.Millisecond
)

// Page prints the demo. On a terminal it has colors, unless NO_COLOR is set, and the pace of a
// reader.
type Page struct {
	out             io.Writer
	terminal, color bool
	steps           int
}

// NewPage prints to out.
func NewPage(out io.Writer) *Page {
	return &Page{out: out, terminal: terminal.File(out) != nil, color: terminal.Colors(out)}
}

// Heading begins a step, and prints what it proves.
func (p *Page) Heading(title string, explanation ...string) {
	p.steps++
	p.print(headingTime, "\n%s\n", p.in("1;36", fmt.Sprintf("%d. %s", p.steps, title)))
	for _, text := range explanation {
		p.print(lineTime, "%s\n", text)
	}
}

// line prints a step and the time at which it happened.
func (p *Page) line(at, text string) { p.print(lineTime, "%s  %s\n", p.in("2", at), text) }

// quote prints the output of a command.
func (p *Page) quote(lines []string) {
	for _, text := range lines {
		p.print(lineTime, "         %s\n", p.in("33", text))
	}
}

// End prints the result, and what to try next.
func (p *Page) End() {
	p.print(lineTime, "\n         %s\n", p.in("1;32", "Every check succeeded."))
	p.print(0, "\nTry next:\n"+
		"  docs/tutorial.md   the tutorial: change endpoints, and watch the rules follow\n"+
		"  docs/migrate.md    replace kube-proxy on a cluster\n")
}

func (p *Page) in(color, text string) string {
	if !p.color {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// print prints, and on a terminal waits for the reader.
func (p *Page) print(pause time.Duration, format string, args ...any) {
	fmt.Fprintf(p.out, format, args...)
	if p.terminal {
		time.Sleep(pause)
	}
}
