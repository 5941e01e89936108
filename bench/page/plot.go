package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/bench/result"
)

// plot is a picture with lines, on axes that may be logarithmic.
type plot struct {
	title          string
	xLabel, yLabel string
	xLog, yLog     bool
	lines          []line
}

// line is a series of points. Style is the name of a program, which has a color, or another one of
// styles; those of one style differ by their dashes.
type line struct {
	name, style string
	dashed      bool
	points      []point
}

type point struct{ x, y float64 }

// Measures of a picture, in pixels. Its height depends on the legend.
const (
	plotWidth                       = 760
	marginLeft, marginRight         = 70, 20
	marginTop                       = 40
	insideWidth                     = plotWidth - marginLeft - marginRight
	insideHeight                    = 270
	legendTop                       = marginTop + insideHeight + 58
	legendColumn, legendLine        = 335, 18
	legendPerRow, legendLineLength  = 2, 26
	axisLabelBelow, tickLabelBelow  = 38, 17
	tickLabelLeft, titleAbove       = 8, 16
	barShare, barGap, barValueAbove = 0.62, 4, 5
)

// styles are all colors, on light and on dark ground.
var styles = []struct{ name, light, dark string }{
	{result.Sluice, "#0b7a5c", "#7fd1a6"}, {result.KubeProxy, "#c2541a", "#f0a36b"},
	{"blue", "#2563b0", "#7db3f0"}, {"purple", "#7b3fa0", "#c79be8"}, {"gray", "#5c6b7a", "#a9b4c0"},
}

// colors returns the rules for one ground.
func colors(dark bool) string {
	var b strings.Builder
	for _, s := range styles {
		color := s.light
		if dark {
			color = s.dark
		}
		fmt.Fprintf(&b, ".%[1]s { stroke: %[2]s }\n.%[1]s-fill { fill: %[2]s }\n", s.name, color)
	}
	return b.String()
}

// head begins a picture with so many entries in its legend. Its colors are readable on light and on
// dark ground, as the reader has it.
func head(title string, entries int) string {
	height := legendTop + (entries+legendPerRow-1)/legendPerRow*legendLine
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" role="img">
<title>%[3]s</title>
<style>
.ground { fill: #ffffff }
text { font: 12px system-ui, sans-serif; fill: #1c2530 }
.title { font-weight: 600; font-size: 14px }
.axis { stroke: #5c6b7a; fill: none }
.grid { stroke: #dfe4ea; fill: none }
.line { fill: none; stroke-width: 2 }
%[6]s.light { opacity: 0.55 }
.dashed { stroke-dasharray: 6 4 }
@media (prefers-color-scheme: dark) {
.ground { fill: #10151c }
text { fill: #d7dee8 }
.axis { stroke: #8a97a6 }
.grid { stroke: #27303b }
%[7]s}
</style>
<rect class="ground" width="%[1]d" height="%[2]d"/>
<text class="title" x="%[4]d" y="%[5]d">%[3]s</text>
`, plotWidth, height, escaped(title), marginLeft, marginTop-titleAbove, colors(false), colors(true))
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a strings.Builder takes everything
	return b.String()
}

// axis maps values to a stretch of pixels.
type axis struct {
	low, high float64
	log       bool
	pixels    float64
}

// newAxis spans the values: from 0, or between powers of ten.
func newAxis(values []float64, log bool, pixels float64) axis {
	a := axis{log: log, pixels: pixels, high: 1}
	if log {
		a.low = math.Inf(1)
		a.high = math.Inf(-1)
		for _, v := range values {
			a.low, a.high = min(a.low, v), max(a.high, v)
		}
		a.low, a.high = math.Pow(10, math.Floor(math.Log10(a.low))), math.Pow(10, math.Ceil(math.Log10(a.high)))
		if a.low == a.high {
			a.high *= 10
		}
		return a
	}
	highest := 0.0
	for _, v := range values {
		highest = max(highest, v)
	}
	a.high = max(rounded(highest/tickCount)*tickCount, math.SmallestNonzeroFloat64)
	return a
}

// tickCount is how many steps a linear axis has.
const tickCount = 5

// rounded returns the next larger of 1, 2, 2.5 and 5 times a power of ten.
func rounded(v float64) float64 {
	if v <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, nice := range []float64{1, 2, 2.5, 5} {
		if v <= nice*unit*(1+1e-9) {
			return nice * unit
		}
	}
	return 10 * unit
}

func (a axis) at(v float64) float64 {
	if a.log {
		return a.pixels * (math.Log10(v) - math.Log10(a.low)) / (math.Log10(a.high) - math.Log10(a.low))
	}
	return a.pixels * (v - a.low) / (a.high - a.low)
}

func (a axis) ticks() (values []float64) {
	if a.log {
		for v := a.low; v <= a.high*1.0001; v *= 10 {
			values = append(values, v)
		}
		return values
	}
	for i := range tickCount + 1 {
		values = append(values, a.high*float64(i)/tickCount)
	}
	return values
}

// tickText is a number without needless digits, in groups of thousands.
func tickText(v float64) string {
	if v < 1000 {
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	return grouped(int(math.Round(v)))
}

// grouped returns a number with commas.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// svg draws the plot.
func (p plot) svg() string {
	var xs, ys []float64
	for _, l := range p.lines {
		for _, at := range l.points {
			xs, ys = append(xs, at.x), append(ys, at.y)
		}
	}
	x, y := newAxis(xs, p.xLog, insideWidth), newAxis(ys, p.yLog, insideHeight)
	var b strings.Builder
	b.WriteString(head(p.title, len(p.lines)))
	drawAxes(&b, x, y, p.xLabel, p.yLabel)
	for i, l := range p.lines {
		p.draw(&b, l, x, y)
		drawLegend(&b, i, l.name, class(l))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func class(l line) string {
	if l.dashed {
		return "line dashed " + l.style
	}
	return "line " + l.style
}

func (p plot) draw(b *strings.Builder, l line, x, y axis) {
	var path strings.Builder
	for i, at := range l.points {
		px, py := marginLeft+x.at(at.x), marginTop+insideHeight-y.at(at.y)
		letter := "L"
		if i == 0 {
			letter = "M"
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", letter, px, py)
		if len(l.points) <= 10 {
			fmt.Fprintf(b, `<circle class="%s-fill" cx="%.1f" cy="%.1f" r="3"/>`+"\n", l.style, px, py)
		}
	}
	fmt.Fprintf(b, `<path class="%s" d="%s"/>`+"\n", class(l), path.String())
}

func drawAxes(b *strings.Builder, x, y axis, xLabel, yLabel string) {
	const bottom = marginTop + insideHeight
	drawScale(b, y, yLabel)
	for _, v := range x.ticks() {
		at := marginLeft + x.at(v)
		fmt.Fprintf(b, `<path class="grid" d="M%.1f %d V%d"/>`+"\n", at, marginTop, bottom)
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", at, bottom+tickLabelBelow, tickText(v))
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", marginLeft+insideWidth/2, bottom+axisLabelBelow, escaped(xLabel))
}

// drawScale draws the frame and the vertical axis.
func drawScale(b *strings.Builder, y axis, label string) {
	const bottom = marginTop + insideHeight
	for _, v := range y.ticks() {
		at := bottom - y.at(v)
		fmt.Fprintf(b, `<path class="grid" d="M%d %.1f H%d"/>`+"\n", marginLeft, at, marginLeft+insideWidth)
		fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", marginLeft-tickLabelLeft, at+4, tickText(v))
	}
	fmt.Fprintf(b, `<path class="axis" d="M%d %d V%d H%d"/>`+"\n", marginLeft, marginTop, bottom, marginLeft+insideWidth)
	fmt.Fprintf(b, `<text transform="translate(16 %d) rotate(-90)" text-anchor="middle">%s</text>`+"\n",
		marginTop+insideHeight/2, escaped(label))
}

func drawLegend(b *strings.Builder, i int, name, class string) {
	x, y := marginLeft+i%legendPerRow*legendColumn, legendTop+i/legendPerRow*legendLine
	fmt.Fprintf(b, `<path class="%s" d="M%d %d h%d"/>`+"\n", class, x, y-4, legendLineLength)
	fmt.Fprintf(b, `<text x="%d" y="%d">%s</text>`+"\n", x+legendLineLength+6, y, escaped(name))
}
