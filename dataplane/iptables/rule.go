package iptables

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane/iptables/dispatch"
)

// rule is one iptables rule of a Service, in parts. Zero parts are left out. The fields are in
// the order in which iptables-save prints them: the tools sort addresses, interface and protocol,
// and keep the order of the rest. The comment is last, because to the kernel it is a match that
// costs a call, and so only packets that match the rest pay for it.
type rule struct {
	source      addrMatch
	destination addrMatch
	input       inputMatch
	// protocol is "tcp", "udp" or "sctp".
	protocol string
	// port is the destination port. It needs a protocol.
	port uint16
	// match is any further match, in canonical text.
	match   string
	comment comment
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

// inputMatch matches the input interface. A trailing "+" makes the name a prefix.
type inputMatch struct {
	name string
	not  bool
}

// comment is a subject with the words around it, in parts, so that building a rule joins no
// strings.
type comment struct {
	before, subject, after string
}

// appendTo appends the rule as iptables-save (1.8.9, both variants) prints it behind
// "-A CHAIN ".
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
	if r.port != 0 {
		b = append(append(b, "-m "...), r.protocol...)
		b = append(b, " --dport "...)
		b = append(strconv.AppendUint(b, uint64(r.port), 10), ' ')
	}
	if r.match != "" {
		b = append(append(b, r.match...), ' ')
	}
	if r.comment != (comment{}) {
		b = append(b, "-m comment --comment "...)
		b = append(r.comment.appendTo(b), ' ')
	}
	if r.target != "" {
		return append(append(b, "-j "...), r.target...)
	}
	if len(b) > start {
		b = b[:len(b)-1] // the space after the last match
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

// appendTo quotes the comment as the tools do, unless it is plain. The source refuses names of
// Services and ports with other characters than those of DNS names, and the words around them are
// ours, so nothing needs an escape.
func (c comment) appendTo(b []byte) []byte {
	if plain(c.before) && plain(c.subject) && plain(c.after) {
		return append(append(append(b, c.before...), c.subject...), c.after...)
	}
	b = append(b, '"')
	b = append(append(append(b, c.before...), c.subject...), c.after...)
	return append(b, '"')
}

// plain reports whether the tools print a string without quotes (xtables_save_string in
// iptables 1.8.9).
func plain(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// probabilityOne is the kernel's fixed-point 1: the statistic match compares 31 random bits
// with a threshold (include/uapi/linux/netfilter/xt_statistic.h).
const probabilityOne = 1 << 31

// appendProbability appends the probability 1/k as iptables-save prints it: the kernel's
// threshold with eleven decimals, enough to restore the same threshold. k is at least 1.
func appendProbability(b []byte, k int) []byte {
	threshold := (probabilityOne + k/2) / k
	return strconv.AppendFloat(b, float64(threshold)/probabilityOne, 'f', 11, 64)
}

// SplitRule cuts a rule, as iptables-save prints it, into the arguments that iptables takes.
// iptables-save prints arguments with spaces in double quotes, in which a backslash precedes a
// quote, an apostrophe or a backslash (xtables_save_string in libxtables/xtables.c).
func SplitRule(rule string) []string {
	var args []string
	for {
		arg, rest, ok := nextArg(rule)
		if !ok {
			return args
		}
		args = append(args, arg)
		rule = rest
	}
}

// ruleTarget returns the argument of -j or -g, or "" for a rule that only counts. A comment may
// read like either.
func ruleTarget(rule string) string {
	for {
		arg, rest, ok := nextArg(rule)
		switch {
		case !ok:
			return ""
		case arg == "--comment":
			_, rest, _ = nextArg(rest)
		case arg == "-j", arg == "-g":
			target, _, _ := nextArg(rest)
			return target
		}
		rule = rest
	}
}

// nextArg takes the first argument off a rule. It allocates only for arguments with a
// backslash, because it runs once per argument of a whole table.
func nextArg(rule string) (arg, rest string, ok bool) {
	rule = strings.TrimLeft(rule, " ")
	if rule == "" {
		return "", "", false
	}
	if rule[0] != '"' {
		arg, rest, _ = strings.Cut(rule, " ")
		return arg, rest, true
	}
	escaped := false
	for i := 1; i < len(rule); i++ {
		switch {
		case rule[i] == '\\':
			escaped = true
			i++
		case rule[i] == '"':
			return unescape(rule[1:i], escaped), rule[i+1:], true
		}
	}
	return unescape(rule[1:], escaped), "", true // the quote is never closed
}

func unescape(s string, escaped bool) string {
	if !escaped {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
