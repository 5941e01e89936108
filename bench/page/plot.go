package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/bench/result"
)

// plot is a picture with lines. With rows, it has a dot for each point instead, and y is the number of a row.
type plot struct {
	title, xLabel, yLabel string
	xLog, yLog            bool
	rows                  []string
	lines                 []line
}

// line is a series of points. Style is the name of a color in styles.
type line struct {
	name, style string
	dashed      bool
	points      []point
}

type point struct{ x, y float64 }

// Measures of a picture, in pixels.
const (
	width, top, right, height = 760, 40, 40, 270
	bottom                    = top + height
	legendTop, legendLine     = bottom + 58, 18
	legendColumn              = 325
)

// styles are the colors on a light and on a dark background.
var styles = []struct{ name, light, dark string }{
	{result.Sluice, "#0b7a5c", "#7fd1a6"}, {result.KubeProxy, "#c2541a", "#f0a36b"},
	{"former", "#8a6a00", "#e3c46a"},
	{"blue", "#2563b0", "#7db3f0"}, {"gray", "#5c6b7a", "#a9b4c0"},
}

const style = `<style>
.ground { fill: #ffffff }
text { font: 12px system-ui, sans-serif; fill: #1c2530 }
.title { font-weight: 600; font-size: 14px }
.grid { stroke: #dfe4ea }
.line { fill: none; stroke-width: 2 }
.dashed { stroke-dasharray: 6 4 }
%s@media (prefers-color-scheme: dark) {
.ground { fill: #10151c }
text { fill: #d7dee8 }
.grid { stroke: #27303b }
%s}
</style>
`

// axis maps values to a range of pixels.
type axis struct {
	low, high, pixels float64
	log               bool
	ticks             []float64
}

// newAxis spans the values: from 0 in five steps, or between powers of ten.
func newAxis(values []float64, log bool, pixels float64) axis {
	if highest := slices.Max(values); !log {
		unit := math.Pow(10, math.Floor(math.Log10(highest/5)))
		step := 10 * unit
		for _, nice := range []float64{5, 2.5, 2, 1} {
			if highest/5 <= nice*unit*(1+1e-9) {
				step = nice * unit
			}
		}
		return axis{high: 5 * step, pixels: pixels, ticks: []float64{0, step, 2 * step, 3 * step, 4 * step, 5 * step}}
	}
	low, high := math.Floor(math.Log10(slices.Min(values))), math.Ceil(math.Log10(slices.Max(values)))
	a := axis{low: low, high: max(high, low+1), pixels: pixels, log: true}
	for power := a.low; power <= a.high; power++ {
		a.ticks = append(a.ticks, math.Pow(10, power))
	}
	return a
}

func (a axis) at(v float64) float64 {
	if a.log {
		v = math.Log10(v)
	}
	return a.pixels * (v - a.low) / (a.high - a.low)
}

// grouped returns a number with commas, and one below 1,000 with up to four digits.
func grouped[T int | float64](n T) string {
	if float64(n) < 1000 {
		return strconv.FormatFloat(float64(n), 'g', 4, 64)
	}
	text := strconv.Itoa(int(math.Round(float64(n))))
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// drawing is a picture in the making.
type drawing struct {
	strings.Builder
	plot
	left float64
	x, y axis
}

// svg draws the plot.
func (p plot) svg() string {
	d := &drawing{plot: p, left: 70}
	var xs, ys []float64
	for _, l := range p.lines {
		for _, at := range l.points {
			xs, ys = append(xs, at.x), append(ys, at.y)
		}
	}
	if p.rows == nil {
		d.y = newAxis(ys, p.yLog, height)
	} else {
		d.left, d.y = 160, axis{low: -0.5, high: float64(len(p.rows)) - 0.5, pixels: height}
	}
	d.x = newAxis(xs, p.xLog, width-right-d.left)
	d.background()
	d.axes()
	for i, l := range p.lines {
		x, y := d.left+float64(i%2*legendColumn), float64(legendTop+i/2*legendLine)
		d.text(x+36, y, "", l.name)
		key := []point{{x, y - 4}, {x + 26, y - 4}}
		if p.rows != nil {
			key = key[1:]
		}
		d.line(l, key)
		var at []point
		for _, v := range l.points {
			at = append(at, point{d.left + d.x.at(v.x), bottom - d.y.at(v.y)})
		}
		d.line(l, at)
	}
	return d.String() + "</svg>\n"
}

func (d *drawing) background() {
	var colors [2]strings.Builder
	for _, s := range styles {
		for i, color := range []string{s.light, s.dark} {
			fmt.Fprintf(&colors[i], ".%[1]s { stroke: %[2]s }\n.%[1]s-fill { fill: %[2]s }\n", s.name, color)
		}
	}
	all := legendTop + (len(d.lines)+1)/2*legendLine
	fmt.Fprintf(d, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" role="img">`+"\n", width, all)
	fmt.Fprintf(d, style, &colors[0], &colors[1])
	fmt.Fprintf(d, `<rect class="ground" width="%d" height="%d"/>`+"\n", width, all)
	d.text(d.left, top-16, `class="title"`, d.title)
}

func (d *drawing) axes() {
	for _, v := range d.x.ticks {
		at := d.left + d.x.at(v)
		fmt.Fprintf(d, `<path class="grid" d="M%.1f %d V%d"/>`+"\n", at, top, bottom)
		d.text(at, bottom+17, `text-anchor="middle"`, grouped(v))
	}
	across := func(v float64, label string) {
		at := bottom - d.y.at(v)
		fmt.Fprintf(d, `<path class="grid" d="M%.1f %.1f H%d"/>`+"\n", d.left, at, width-right)
		d.text(d.left-8, at+4, `text-anchor="end"`, label)
	}
	for _, v := range d.y.ticks {
		across(v, grouped(v))
	}
	for i, name := range d.rows {
		across(float64(i), name)
	}
	d.text((d.left+width-right)/2, bottom+38, `text-anchor="middle"`, d.xLabel)
	d.text(0, 0, fmt.Sprintf(`transform="translate(16 %d) rotate(-90)" text-anchor="middle"`, top+height/2), d.yLabel)
}

func (d *drawing) text(x, y float64, attributes, words string) {
	fmt.Fprintf(d, `<text x="%.1f" y="%.1f" %s>`, x, y, attributes)
	_ = xml.EscapeText(d, []byte(words)) // a strings.Builder takes everything
	d.WriteString("</text>\n")
}

// line draws points of the picture: dots, a line, or both if they are few.
func (d *drawing) line(l line, points []point) {
	path, letter := "", "M"
	for _, at := range points {
		path, letter = path+fmt.Sprintf("%s%.1f %.1f", letter, at.x, at.y), "L"
		if len(points) <= 10 || d.rows != nil {
			fmt.Fprintf(d, `<circle class="%s-fill" cx="%.1f" cy="%.1f" r="3.5"/>`+"\n", l.style, at.x, at.y)
		}
	}
	class := "line " + l.style
	if l.dashed {
		class += " dashed"
	}
	if d.rows == nil {
		fmt.Fprintf(d, `<path class="%s" d="%s"/>`+"\n", class, path)
	}
}
