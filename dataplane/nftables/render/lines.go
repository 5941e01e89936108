package render

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/service"
)

// Lines returns an object in nft's words, for a reader: where it is, such as "frontends" or
// "chain services", and its lines. Other programs and releases may have made the object; what
// has no words here is counted in bytes.
func Lines(family service.Family, o *dataplane.Object) (where string, lines []string) {
	where, lines = describe(dialects[family], o)
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return printable(where), lines
}

// printable replaces what could move a terminal's cursor: the kernel accepts any bytes in a name.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

func describe(d *dialect, o *dataplane.Object) (where string, lines []string) {
	if name, ok := SetOf(o.ID.Container); ok {
		text, err := elementText(d, name, o)
		if err != nil {
			text = fmt.Sprintf("an element with the key %x, of another release", o.ID.Name)
		}
		return name, []string{text}
	}
	switch o.ID.Container {
	case ContainerTable:
		return "table " + d.Name + " " + TableName, nil
	case ContainerChain:
		return "chain " + o.ID.Name, chainLines(d, o)
	default:
		return "set " + o.ID.Name, setLines(d, o)
	}
}

func chainLines(d *dialect, o *dataplane.Object) (lines []string) {
	c := rules.DecodeChain(o.ID.Name, []byte(o.Body))
	if c.Base != nil {
		lines = append(lines, c.Base.Text())
	}
	for i := range c.Rules {
		text, err := c.Rules[i].Text(d.Family)
		if err != nil {
			text = fmt.Sprintf("a rule of %d bytes, of another program or release", len(c.Rules[i].Encode(nil)))
		}
		lines = append(lines, text)
	}
	return lines
}

// setLines returns a set's definition without its braces.
func setLines(d *dialect, o *dataplane.Object) []string {
	s, err := definition(o.ID.Name)
	if err != nil || s.object(d).Body != o.Body {
		return []string{"a definition of another program or release"}
	}
	lines := strings.Split(strings.TrimSpace(s.text(d, nil)), "\n")
	lines = lines[1 : len(lines)-1]
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return lines
}
