package memory

import (
	"slices"
	"strings"
)

// conntrackMatch is -m conntrack --ctstate.
type conntrackMatch struct {
	// states is indexed as ctstates.
	states   [7]bool
	set      bool
	inverted bool
}

// ctstates are the states in the order in which they are printed.
var ctstates = [7]string{"INVALID", "NEW", "RELATED", "ESTABLISHED", "UNTRACKED", "SNAT", "DNAT"}

const (
	ctNew  = 1
	ctDNAT = 6
)

func (m *conntrackMatch) option(p *parser, name string) (bool, error) {
	if name != "--ctstate" {
		return false, nil
	}
	if m.set {
		return true, refusef("conntrack: option %q can be used only once", name)
	}
	value, err := p.value(name)
	if err != nil {
		return true, err
	}
	for _, state := range strings.Split(value, ",") {
		i := slices.Index(ctstates[:], state)
		if i < 0 {
			return true, refusef("Bad ctstate %q", state)
		}
		m.states[i] = true
	}
	m.set, m.inverted = true, p.invert()
	return true, nil
}

func (m *conntrackMatch) complete(*rule) error {
	if !m.set {
		return refusef("conntrack: At least one option is required")
	}
	return nil
}

// holds knows new connections only. A source is translated after the last rule
// that could see it, so SNAT never holds.
func (m *conntrackMatch) holds(w *walk) bool {
	return (m.states[ctNew] || m.states[ctDNAT] && w.translated) != m.inverted
}

func (m *conntrackMatch) print(b *strings.Builder) {
	var states []string
	for i, set := range m.states {
		if set {
			states = append(states, ctstates[i])
		}
	}
	write(b, false, "-m conntrack")
	write(b, m.inverted, "--ctstate", strings.Join(states, ","))
}
