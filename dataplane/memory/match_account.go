package memory

import (
	"strings"
)

// accountMatch is -m nfacct: it always holds, and needs an accounting object of
// its name in the kernel.
type accountMatch struct{ name string }

func (m *accountMatch) option(p *parser, name string) (bool, error) {
	if name != "--nfacct-name" {
		return false, nil
	}
	value, err := p.value(name)
	m.name = value
	return true, err
}

func (m *accountMatch) complete(*rule) error {
	if m.name == "" {
		return refusef(`nfacct: option "--nfacct-name" must be specified`)
	}
	return nil
}

func (m *accountMatch) holds(*walk) bool { return true }

func (m *accountMatch) print(b *strings.Builder) {
	write(b, false, "-m nfacct --nfacct-name", m.name)
}
