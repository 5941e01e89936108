package memory

import (
	"net/netip"

	"github.com/sluice-proxy/sluice/service"
)

// Packet is the first packet of a new connection. Its addresses are of the
// kernel's family.
type Packet struct {
	Src, Dst netip.AddrPort
	Protocol service.Protocol
	// In is the interface through which the packet arrived; empty for one that
	// a process of the node sends.
	In string
	// Out is the interface through which routing sends it in the end; needed
	// only where rules look at it.
	Out string
}

// Choice decides a rule of chance (-m statistic) that holds with the given
// probability.
type Choice func(probability float64) bool

// Verdict is what became of a packet.
type Verdict uint8

const (
	// Untouched: it goes on to the destination it was sent to.
	Untouched Verdict = iota
	// Delivered: it was given another destination.
	Delivered
	// Rejected: its sender is told that the port is unreachable.
	Rejected
	// Dropped: it is gone, and nobody is told.
	Dropped
)

// String names the verdict.
func (v Verdict) String() string {
	return [...]string{"untouched", "delivered", "rejected", "dropped"}[v]
}

// Trace is the way of one packet.
type Trace struct {
	Verdict Verdict
	// To is the destination when the packet left the rules, for whatever
	// verdict.
	To netip.AddrPort
	// Masqueraded is set when the receiver sees an address of the node instead
	// of the sender's.
	Masqueraded bool
	// Mark is the packet's mark in the end.
	Mark uint32
	// Steps are the rules that matched, each as "TABLE -A CHAIN ...".
	Steps []string
	// RulesVisited counts the rules that were asked, matching or not.
	RulesVisited int
}

// Outcome is one way in which a packet can end.
type Outcome struct {
	// Trace is one of the ways to this end.
	Trace
	// Probability is above 0; those of all outcomes sum to 1.
	Probability float64
}
