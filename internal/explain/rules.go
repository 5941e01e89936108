// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"net/netip"

	"github.com/sluice-proxy/sluice/service"
)

// Verdict is how a connection ends.
type Verdict string

// The verdicts.
const (
	// Delivered: an endpoint gets it.
	Delivered Verdict = "delivered"
	// Refused: its sender is told that the port is unreachable.
	Refused Verdict = "refused"
	// Dropped: the client gets no response.
	Dropped Verdict = "dropped"
	// Untouched: no rule changes it; it goes where it was sent to.
	Untouched Verdict = "untouched"
)

// packet is the first packet of a connection. In is the interface through which it arrives,
// and empty for one that a process of the node sends.
type packet struct {
	Src, Dst netip.AddrPort
	Protocol service.Protocol
	In       string
	// AnyPort means that the port of Src stands for any port.
	AnyPort bool
}

// way is one way in which a packet can end.
type way struct {
	Verdict Verdict
	// To is its final destination.
	To          netip.AddrPort
	Masqueraded bool
	// Probability is above 0. Those of all ways sum to 1.
	Probability float64
	// Scheduler is that of the virtual server of IPVS that chose the receiver, if any. How says how the scheduler chooses
	// if its choice depends on its own state, so that Probability means nothing.
	Scheduler, How string
	Steps          []Step
}

// Step is a rule that matched.
type Step struct {
	// Hook is where the kernel called the rules: prerouting, input, forward, output or
	// postrouting.
	Hook string `json:"hook"`
	// Table is "nat", "filter" or "mangle": the table in iptables and IPVS mode, the type of the
	// base chain in nftables mode. "ipvs" stands for virtual servers.
	Table string `json:"table"`
	Chain string `json:"chain"`
	// Base is set for a chain that the kernel calls itself.
	Base bool `json:"base,omitempty"`
	// Rule is the number of the rule in the chain, from 1. It is 0 in iptables mode, where the
	// rules of other Services are in the same chains.
	Rule int `json:"rule,omitempty"`
	// Text is the rule as nft or iptables-save prints it, or what ipvsadm --save prints.
	Text string `json:"text"`
	// Set is the set or map with the element that the rule found, if any, and Element the
	// element as nft or ipset prints it.
	Set     string `json:"set,omitempty"`
	Element string `json:"element,omitempty"`
	// recalls is set if the rule found the client among those that the kernel remembers.
	recalls bool
}

// ruleset follows packets through rules. A rule that it does not understand is an error.
type ruleset interface {
	ways(packet) ([]way, error)
}
