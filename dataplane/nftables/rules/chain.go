// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// Chain is a chain with its rules.
type Chain struct {
	Name string
	// Base is nil for a chain that packets reach only by a jump.
	Base  *Base
	Rules []Rule
}

// Base defines where the kernel calls a base chain.
type Base struct {
	Kind     string // "filter" or "nat"
	Hook     uint32
	Priority int32
}

// policyAccept is NF_ACCEPT: a packet that reaches the end of a base chain continues.
const policyAccept = 1

// The encoding of a chain is a list of attributes that only this package defines: for a base chain one with the
// attributes of the chain, and then one with the attributes of each rule.
const (
	partBase = 1
	partRule = 2
)

// Encode returns the chain as bytes, without its name.
func (c *Chain) Encode() []byte {
	const usual = 512 // bytes
	to := codec{b: make([]byte, 0, usual)}
	if c.Base != nil {
		to.b = netlink.AppendBytes(to.b, partBase, c.Base.encode())
	}
	for i := range c.Rules {
		mark := to.nest(partRule)
		c.Rules[i].encode(&to)
		to.end(mark)
	}
	return to.b
}

// encode returns the attributes of a base chain.
func (h *Base) encode() []byte {
	b, mark := netlink.Nest(nil, unix.NFTA_CHAIN_HOOK)
	b = netlink.AppendUint32(b, unix.NFTA_HOOK_HOOKNUM, h.Hook)
	b = netlink.AppendUint32(b, unix.NFTA_HOOK_PRIORITY, uint32(h.Priority))
	b = netlink.End(b, mark)
	b = netlink.AppendUint32(b, unix.NFTA_CHAIN_POLICY, policyAccept)
	return netlink.AppendText(b, unix.NFTA_CHAIN_TYPE, h.Kind)
}

// FoundChain begins the encoding of a chain as the kernel describes it. AddFound adds its rules.
func FoundChain(attrs []byte) []byte {
	hooked := netlink.Find(attrs, unix.NFTA_CHAIN_HOOK).Data
	if hooked == nil {
		return nil
	}
	b, base := netlink.Nest(nil, partBase)
	b, hook := netlink.Nest(b, unix.NFTA_CHAIN_HOOK)
	for attr := range netlink.Attrs(hooked) {
		b = netlink.AppendBytes(b, attr.Type, attr.Data)
	}
	b = netlink.End(b, hook)
	b = netlink.AppendBytes(b, unix.NFTA_CHAIN_POLICY, netlink.Find(attrs, unix.NFTA_CHAIN_POLICY).Data)
	b = netlink.AppendText(b, unix.NFTA_CHAIN_TYPE, netlink.Find(attrs, unix.NFTA_CHAIN_TYPE).Text())
	return netlink.End(b, base)
}

// AddFound adds a rule as the kernel describes it, in normal form.
func AddFound(chain, attrs []byte) []byte {
	r := DecodeRule(attrs)
	b, mark := netlink.Nest(chain, partRule)
	return netlink.End(r.Encode(b), mark)
}

// DecodeChain reads an encoded chain.
func DecodeChain(name string, body []byte) Chain {
	c := Chain{Name: name}
	base, rules := Parts(body)
	if base != nil {
		hook := netlink.Find(base, unix.NFTA_CHAIN_HOOK).Data
		c.Base = &Base{
			Kind:     netlink.Find(base, unix.NFTA_CHAIN_TYPE).Text(),
			Hook:     netlink.Find(hook, unix.NFTA_HOOK_HOOKNUM).Uint32(),
			Priority: int32(netlink.Find(hook, unix.NFTA_HOOK_PRIORITY).Uint32()),
		}
	}
	for _, attrs := range rules {
		c.Rules = append(c.Rules, DecodeRule(attrs))
	}
	return c
}

// Parts returns the attributes of the chain itself and of each rule, as in messages.
func Parts(body []byte) (base []byte, rules [][]byte) {
	for attr := range netlink.Attrs(body) {
		if attr.Type == partBase {
			base = attr.Data
		} else {
			rules = append(rules, attr.Data)
		}
	}
	return base, rules
}

// Verdict codes (linux/netfilter/nf_tables.h), as the kernel sends them.
const (
	Drop   = uint32(0)      // NF_DROP
	Accept = uint32(1)      // NF_ACCEPT
	Jump   = ^uint32(0) - 2 // NFT_JUMP, -3
	Goto   = ^uint32(0) - 3 // NFT_GOTO, -4
	Return = ^uint32(0) - 4 // NFT_RETURN, -5
)

// Append appends the verdict as the data of a register or of an element.
func (e *Verdict) Append(b []byte) []byte {
	b, mark := netlink.Nest(b, unix.NFTA_DATA_VERDICT)
	b = netlink.AppendUint32(b, unix.NFTA_VERDICT_CODE, e.Code)
	if e.Chain != "" {
		b = netlink.AppendText(b, unix.NFTA_VERDICT_CHAIN, e.Chain)
	}
	return netlink.End(b, mark)
}

// VerdictIn returns the verdict in the data of an element; false if there is none.
func VerdictIn(data []byte) (Verdict, bool) {
	attrs := netlink.Find(data, unix.NFTA_DATA_VERDICT).Data
	return Verdict{
		Code:  netlink.Find(attrs, unix.NFTA_VERDICT_CODE).Uint32(),
		Chain: netlink.Find(attrs, unix.NFTA_VERDICT_CHAIN).Text(),
	}, attrs != nil
}
