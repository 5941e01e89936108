package memory

import (
	"net/netip"
	"strings"
)

// addrtypeMatch is -m addrtype with the type LOCAL: an address of the node.
type addrtypeMatch struct {
	src, dst                 bool
	srcInverted, dstInverted bool
}

func (m *addrtypeMatch) option(p *parser, name string) (bool, error) {
	var set, inverted *bool
	switch name {
	case "--src-type":
		set, inverted = &m.src, &m.srcInverted
	case "--dst-type":
		set, inverted = &m.dst, &m.dstInverted
	default:
		return false, nil
	}
	if *set {
		return true, refusef("addrtype: option %q can be used only once", name)
	}
	value, err := p.value(name)
	if err != nil {
		return true, err
	}
	if value != "LOCAL" {
		return true, refusef("addrtype: bad type `%s'", value)
	}
	*set, *inverted = true, p.invert()
	return true, nil
}

func (m *addrtypeMatch) complete(*rule) error {
	if !m.src && !m.dst {
		return refusef("addrtype: you must specify --src-type or --dst-type")
	}
	return nil
}

func (m *addrtypeMatch) holds(w *walk) bool {
	holds := func(set, inverted bool, a netip.Addr) bool { return !set || w.local(a) != inverted }
	return holds(m.src, m.srcInverted, w.src.Addr()) && holds(m.dst, m.dstInverted, w.dst.Addr())
}

func (m *addrtypeMatch) print(b *strings.Builder) {
	write(b, false, "-m addrtype")
	if m.src {
		write(b, m.srcInverted, "--src-type LOCAL")
	}
	if m.dst {
		write(b, m.dstInverted, "--dst-type LOCAL")
	}
}
