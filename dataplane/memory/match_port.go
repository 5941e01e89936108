package memory

import (
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/service"
)

// portMatch is -m tcp, -m udp or -m sctp.
type portMatch struct {
	protocol service.Protocol
	src, dst portRange
}

// portRange is an inclusive range; it is ignored unless set.
type portRange struct {
	set         bool
	first, last uint16
	inverted    bool
}

func (r portRange) holds(port uint16) bool {
	return !r.set || (r.first <= port && port <= r.last) != r.inverted
}

func (r portRange) print(b *strings.Builder, flag string) {
	if !r.set {
		return
	}
	text := strconv.Itoa(int(r.first))
	if r.last != r.first {
		text += ":" + strconv.Itoa(int(r.last))
	}
	write(b, r.inverted, flag, text)
}

func (m *portMatch) option(p *parser, name string) (bool, error) {
	var ports *portRange
	switch name {
	case "--dport", "--destination-port":
		ports = &m.dst
	case "--sport", "--source-port":
		ports = &m.src
	default:
		return false, nil
	}
	if ports.set {
		return true, refusef("%s: option %q can be used only once", m.protocol, name)
	}
	value, err := p.value(name)
	if err != nil {
		return true, err
	}
	first, last, ranged := strings.Cut(value, ":")
	if !ranged {
		last = first
	}
	if ports.first, err = parsePort(first); err != nil {
		return true, err
	}
	if ports.last, err = parsePort(last); err != nil {
		return true, err
	}
	if ports.first > ports.last {
		return true, refusef("invalid portrange (min > max)")
	}
	ports.set, ports.inverted = true, p.invert()
	return true, nil
}

func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, refusef("invalid port/service `%s' specified", text)
	}
	return uint16(n), nil
}

func (m *portMatch) complete(r *rule) error {
	if !r.protocol.set || r.protocol.inverted || r.protocol.protocol != m.protocol {
		return refusef("%s match requires '-p %s'", strings.ToUpper(m.protocol.String()), m.protocol)
	}
	return nil
}

func (m *portMatch) holds(w *walk) bool {
	return m.src.holds(w.src.Port()) && m.dst.holds(w.dst.Port())
}

func (m *portMatch) print(b *strings.Builder) {
	write(b, false, "-m", m.protocol.String())
	m.src.print(b, "--sport")
	m.dst.print(b, "--dport")
}
