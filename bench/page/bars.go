package main

import (
	"fmt"
	"strings"
)

// bars is a picture with groups of bars. Each bar has two parts, one on the other.
type bars struct {
	title, yLabel string
	// parts names the parts, the lower first.
	parts  [2]string
	groups []barGroup
}

type barGroup struct {
	name string
	bars []bar
}

// bar is one program's. Its style is as in a line.
type bar struct {
	style        string
	lower, upper float64
}

func (p bars) svg() string {
	var heights []float64
	for _, g := range p.groups {
		for _, b := range g.bars {
			heights = append(heights, b.lower+b.upper)
		}
	}
	y := newAxis(heights, false, insideHeight)
	var out strings.Builder
	out.WriteString(head(p.title, len(p.parts)*len(p.groups[0].bars)))
	drawScale(&out, y, p.yLabel)
	width := float64(insideWidth) / float64(len(p.groups))
	for i, g := range p.groups {
		left := marginLeft + width*float64(i)
		fmt.Fprintf(&out, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			left+width/2, marginTop+insideHeight+tickLabelBelow, escaped(g.name))
		each := width * barShare / float64(len(g.bars))
		for j, b := range g.bars {
			b.draw(&out, y, left+width*(1-barShare)/2+each*float64(j), each-barGap)
		}
	}
	p.drawKey(&out)
	out.WriteString("</svg>\n")
	return out.String()
}

func (b bar) draw(out *strings.Builder, y axis, left, width float64) {
	const bottom = marginTop + insideHeight
	lower, upper := y.at(b.lower), y.at(b.upper)
	fmt.Fprintf(out, `<rect class="%s-fill" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`+"\n", b.style, left, bottom-lower, width, lower)
	fmt.Fprintf(out, `<rect class="%s-fill light" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`+"\n",
		b.style, left, bottom-lower-upper, width, upper)
	fmt.Fprintf(out, `<text x="%.1f" y="%.1f" text-anchor="middle">%.1f</text>`+"\n",
		left+width/2, bottom-lower-upper-barValueAbove, b.lower+b.upper)
}

// drawKey says which color and which shade is what.
func (p bars) drawKey(out *strings.Builder) {
	var styles []string
	for _, b := range p.groups[0].bars {
		styles = append(styles, b.style)
	}
	for i, style := range styles {
		for j, part := range p.parts {
			x, y := marginLeft+j*legendColumn, legendTop+i*legendLine
			shade := [2]string{"", " light"}[j]
			fmt.Fprintf(out, `<rect class="%s-fill%s" x="%d" y="%d" width="14" height="12"/>`+"\n", style, shade, x, y-10)
			fmt.Fprintf(out, `<text x="%d" y="%d">%s, %s</text>`+"\n", x+20, y, escaped(style), escaped(part))
		}
	}
}
