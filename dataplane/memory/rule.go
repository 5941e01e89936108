package memory

import (
	"net/netip"
	"strings"

	"github.com/sluice-proxy/sluice/service"
)

// rule is one rule. It is immutable once parsed.
type rule struct {
	src, dst addressMatch
	in, out  interfaceMatch
	protocol protocolMatch
	matches  []match
	// target is nil for a rule that only counts.
	target target
	// text is everything behind "-A CHAIN", as iptables-save prints it. Two
	// rules are equal exactly when their texts are.
	text string
}

// jump gives the chain that the rule continues in, or "".
func (r *rule) jump() string {
	if j, ok := r.target.(jumpTarget); ok {
		return string(j)
	}
	return ""
}

// holds tells whether the packet matches. Matches are asked in order and the
// first that says no ends it, because some of them have effects.
func (r *rule) holds(w *walk) bool {
	if !r.src.holds(w.src.Addr()) || !r.dst.holds(w.dst.Addr()) ||
		!r.in.holds(w.in) || !r.out.holds(w.out) || !r.protocol.holds(w.protocol) {
		return false
	}
	for _, m := range r.matches {
		if !m.holds(w) {
			return false
		}
	}
	return true
}

// print gives the canonical text, parts in the order of iptables-save 1.8.
func (r *rule) print() string {
	var b strings.Builder
	r.src.print(&b, "-s")
	r.dst.print(&b, "-d")
	r.in.print(&b, "-i")
	r.out.print(&b, "-o")
	r.protocol.print(&b)
	for _, m := range r.matches {
		m.print(&b)
	}
	if r.target != nil {
		r.target.print(&b)
	}
	return strings.TrimPrefix(b.String(), " ")
}

// addressMatch is -s or -d; the zero value matches everything.
type addressMatch struct {
	prefix   netip.Prefix
	inverted bool
}

func (m addressMatch) holds(a netip.Addr) bool {
	return !m.prefix.IsValid() || m.prefix.Contains(a) != m.inverted
}

func (m addressMatch) print(b *strings.Builder, flag string) {
	if m.prefix.IsValid() {
		write(b, m.inverted, flag, m.prefix.String())
	}
}

// interfaceMatch is -i or -o; the zero value matches everything. A trailing "+"
// makes the name a prefix.
type interfaceMatch struct {
	name     string
	inverted bool
}

func (m interfaceMatch) holds(name string) bool {
	if m.name == "" {
		return true
	}
	if prefix, ok := strings.CutSuffix(m.name, "+"); ok {
		return strings.HasPrefix(name, prefix) != m.inverted
	}
	return (m.name == name) != m.inverted
}

func (m interfaceMatch) print(b *strings.Builder, flag string) {
	if m.name != "" {
		write(b, m.inverted, flag, m.name)
	}
}

// protocolMatch is -p; the zero value matches everything.
type protocolMatch struct {
	set      bool
	protocol service.Protocol
	inverted bool
}

func (m protocolMatch) holds(p service.Protocol) bool {
	return !m.set || (m.protocol == p) != m.inverted
}

func (m protocolMatch) print(b *strings.Builder) {
	if m.set {
		write(b, m.inverted, "-p", m.protocol.String())
	}
}

// write appends an option and its value, each after a space.
func write(b *strings.Builder, inverted bool, words ...string) {
	if inverted {
		b.WriteString(" !")
	}
	for _, word := range words {
		b.WriteByte(' ')
		b.WriteString(word)
	}
}
