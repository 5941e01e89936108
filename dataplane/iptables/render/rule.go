// SPDX-License-Identifier: Apache-2.0

package render

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/rules"
)

// rule is one iptables rule of a Service, in parts. Zero parts are left out. The fields are in
// the order in which iptables-save prints them: the tools sort addresses, interface and protocol,
// and keep the order of the rest. The comment is last, because the kernel treats it as a match that
// costs a call: in this position it costs nothing for packets that do not match the rest.
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

// comment is a subject with the text around it, in parts, so that rendering a rule does not join
// strings.
type comment struct {
	before, subject, after string
}

// appendTo appends the rule as iptables-save (1.8.9, both variants) prints it after
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
		b = append(rules.AppendQuoted(b, r.comment.before, r.comment.subject, r.comment.after), ' ')
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
	return append(rules.AppendPrefix(b, m.prefix), ' ')
}

func appendNot(b []byte, not bool) []byte {
	if not {
		return append(b, "! "...)
	}
	return b
}

// probabilityOne is the kernel's fixed-point 1: the statistic match compares 31 random bits
// with a threshold (include/uapi/linux/netfilter/xt_statistic.h).
const probabilityOne = 1 << 31

// appendProbability appends the probability part/k as iptables-save prints it: the kernel's threshold
// as a fraction with eleven decimals, enough to restore the same threshold. k is at least part.
func appendProbability(b []byte, part, k int) []byte {
	threshold := (probabilityOne*int64(part) + int64(k)/2) / int64(k)
	return strconv.AppendFloat(b, float64(threshold)/probabilityOne, 'f', 11, 64)
}

// RuleLines cuts a chain's body into its rules.
func RuleLines(o *dataplane.Object) []string {
	if o.Body == "" {
		return nil
	}
	return strings.Split(o.Body, "\n")
}
