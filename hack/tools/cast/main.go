// Command cast runs a program and draws what it prints, line by line at its real times, as
// an animated SVG:
//
//	cast -o demo.svg -slower 3 -- sluice demo
//
// The picture has no script and no outside assets, so that a forge shows it. Where
// animations are off, or the page is printed, every line is visible.
package main

import (
	"bufio"
	"encoding/xml"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Measures of the picture, in pixels, and how long the last line stays.
const (
	lineHeight, charWidth, margin = 19, 7.85, 16
	rest                          = 6 * time.Second
)

// line is a printed line, and when it came.
type line struct {
	at   time.Duration
	text string
}

func main() {
	out := flag.String("o", "", "the SVG file to write")
	slower := flag.Float64("slower", 1, "factor for all times")
	flag.Parse()
	if *out == "" || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: cast -o FILE [-slower FACTOR] -- PROGRAM ARGUMENT...")
		os.Exit(2)
	}
	lines, err := record(flag.Args())
	if err == nil {
		err = os.WriteFile(*out, []byte(draw(lines, *slower)), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cast:", err)
		os.Exit(1)
	}
}

// record runs a program; its first line is the command itself.
func record(words []string) ([]line, error) {
	shown := append([]string{filepath.Base(words[0])}, words[1:]...)
	lines := []line{{0, "$ " + strings.Join(shown, " ")}}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stderr = os.Stderr
	printed, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for scan := bufio.NewScanner(printed); scan.Scan(); {
		lines = append(lines, line{time.Since(start), scan.Text()})
	}
	return lines, cmd.Wait()
}

// draw returns the picture. Each line has a separate animation, as long as the whole,
// that shows it from its time on.
func draw(lines []line, slower float64) string {
	columns := 0
	for _, l := range lines {
		columns = max(columns, len([]rune(l.text)))
	}
	scaled := func(d time.Duration) float64 { return d.Seconds() * slower }
	total := scaled(lines[len(lines)-1].at) + rest.Seconds()
	width, height := float64(columns)*charWidth+2*margin, len(lines)*lineHeight+2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" width="%.0f" height="%d" role="img">`+"\n",
		width, height, width, height)
	b.WriteString("<style>\nrect { fill: #10151c }\ntext { font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #d7dee8; white-space: pre }\n" +
		".command { fill: #7fd1a6 }\n@media screen and (prefers-reduced-motion: no-preference) {\n")
	for i, l := range lines {
		from := 100 * scaled(l.at) / total
		fmt.Fprintf(&b, "#l%d { animation: k%d %.2fs infinite }\n@keyframes k%d { 0%%, %.2f%% { opacity: 0 } %.2f%%, 100%% { opacity: 1 } }\n",
			i, i, total, i, from, min(100, from+0.01))
	}
	b.WriteString("}\n</style>\n<rect width=\"100%\" height=\"100%\" rx=\"8\"/>\n")
	for i, l := range lines {
		class := ""
		if i == 0 {
			class = ` class="command"`
		}
		fmt.Fprintf(&b, `<text id="l%d"%s xml:space="preserve" x="%d" y="%d">`, i, class, margin, margin+lineHeight*i+lineHeight*3/4)
		_ = xml.EscapeText(&b, []byte(l.text)) // a strings.Builder never fails
		b.WriteString("</text>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}
