package iptables

import (
	"net/netip"
	"strconv"

	"github.com/sluice-proxy/sluice/dataplane/iptables/dispatch"
)

// rule is one iptables rule of a Service, in parts. Zero parts are left out. The
// fields stand in the order in which iptables-save prints them; what is before
// the comment the tools put in this order themselves, what follows stays as
// written.
type rule struct {
	source      addrMatch
	destination addrMatch
	input       inputMatch
	// protocol is "tcp", "udp" or "sctp".
	protocol string
	comment  comment
	// match is any further match, in canonical text.
	match string
	// port is the destination port; it needs a protocol.
	port uint16
	// target is a chain, or a target with its options.
	target string
}

// addrMatch matches an address against a prefix.
type addrMatch struct {
	prefix netip.Prefix
	not    bool
}

// host matches one address.
func host(addr netip.Addr) addrMatch {
	return addrMatch{prefix: netip.PrefixFrom(addr, addr.BitLen())}
}

// inputMatch matches the input interface; a trailing "+" makes it a prefix.
type inputMatch struct {
	name string
	not  bool
}

// comment is a subject with the words around it, kept apart so that nobody has
// to join them first.
type comment struct {
	before, subject, after string
}

// appendTo appends the rule as iptables-save (1.8.9, both variants) prints it
// behind "-A CHAIN ".
func (r *rule) appendTo(b []byte) []byte {
	start := len(b)
	b = r.source.appendTo(b, "-s ")
	b = r.destination.appendTo(b, "-d ")
	if r.input.name != "" {
		b = append(appendNot(b, r.input.not), "-i "...)
		b = append(append(b, r.input.name...), ' ')
	}
	if r.protocol != "" {
		b = append(append(b, "-p "...), r.protocol...)
		b = append(b, ' ')
	}
	if r.comment != (comment{}) {
		b = append(b, "-m comment --comment "...)
		b = append(r.comment.appendTo(b), ' ')
	}
	if r.match != "" {
		b = append(append(b, r.match...), ' ')
	}
	if r.port != 0 {
		b = append(append(b, "-m "...), r.protocol...)
		b = append(b, " --dport "...)
		b = append(strconv.AppendUint(b, uint64(r.port), 10), ' ')
	}
	if r.target != "" {
		b = append(append(b, "-j "...), r.target...)
		return b
	}
	if len(b) > start {
		// The blank behind the last match.
		b = b[:len(b)-1]
	}
	return b
}

func (m addrMatch) appendTo(b []byte, flag string) []byte {
	if !m.prefix.IsValid() {
		return b
	}
	b = append(appendNot(b, m.not), flag...)
	return append(dispatch.AppendPrefix(b, m.prefix), ' ')
}

func appendNot(b []byte, not bool) []byte {
	if not {
		return append(b, "! "...)
	}
	return b
}

// appendTo quotes the comment as the tools do. Names of Services and ports are
// DNS labels, and the words around are ours, so that nothing needs an escape.
func (c comment) appendTo(b []byte) []byte {
	if plain(c.before) && plain(c.subject) && plain(c.after) {
		return append(append(append(b, c.before...), c.subject...), c.after...)
	}
	b = append(b, '"')
	b = append(append(append(b, c.before...), c.subject...), c.after...)
	return append(b, '"')
}

// appendQuoted appends a word as the tools print the argument of a match:
// without quotes when it is plain.
func appendQuoted(b []byte, word string) []byte {
	return comment{subject: word}.appendTo(b)
}

// plain tells whether the tools print a string without quotes
// (xtables_save_string in iptables 1.8.9).
func plain(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}
