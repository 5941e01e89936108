package memory

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// markMatch is -m mark.
type markMatch struct {
	value, mask uint32
	set         bool
	inverted    bool
}

func (m *markMatch) option(p *parser, name string) (bool, error) {
	if name != "--mark" {
		return false, nil
	}
	if m.set {
		return true, refusef("mark: option %q can be used only once", name)
	}
	value, err := p.value(name)
	if err != nil {
		return true, err
	}
	if m.value, m.mask, err = parseMark(value); err != nil {
		return true, err
	}
	m.set, m.inverted = true, p.invert()
	return true, nil
}

// parseMark reads VALUE[/MASK], each decimal or hexadecimal.
func parseMark(text string) (value, mask uint32, err error) {
	first, second, masked := strings.Cut(text, "/")
	v, err := strconv.ParseUint(first, 0, 32)
	if err != nil {
		return 0, 0, refusef("mark: bad value %q", text)
	}
	if !masked {
		return uint32(v), math.MaxUint32, nil
	}
	n, err := strconv.ParseUint(second, 0, 32)
	if err != nil {
		return 0, 0, refusef("mark: bad mask %q", text)
	}
	return uint32(v), uint32(n), nil
}

func (m *markMatch) complete(*rule) error {
	if !m.set {
		return refusef(`mark: option "--mark" must be specified`)
	}
	return nil
}

func (m *markMatch) holds(w *walk) bool { return (w.mark&m.mask == m.value) != m.inverted }

func (m *markMatch) print(b *strings.Builder) {
	text := fmt.Sprintf("0x%x", m.value)
	if m.mask != math.MaxUint32 {
		text += fmt.Sprintf("/0x%x", m.mask)
	}
	write(b, false, "-m mark")
	write(b, m.inverted, "--mark", text)
}
