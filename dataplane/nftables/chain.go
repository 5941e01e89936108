package nftables

import (
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/netlink"
)

// The body of a chain is a list of attributes of our own: first the attributes of
// the chain itself, for a base chain, then those of each rule.
const (
	bodyChain = 1
	bodyRule  = 2
)

// hook says where a base chain is called.
type hook struct {
	kind     string // "filter" or "nat"
	number   uint32
	priority int32
}

// policyAccept is NF_ACCEPT: what falls off the end of a base chain goes on.
const policyAccept = 1

// attrs are the attributes of a base chain.
func (h hook) attrs() []byte {
	b, mark := netlink.Nest(nil, unix.NFTA_CHAIN_HOOK)
	b = netlink.AppendUint32(b, unix.NFTA_HOOK_HOOKNUM, h.number)
	b = netlink.AppendUint32(b, unix.NFTA_HOOK_PRIORITY, uint32(h.priority))
	b = netlink.End(b, mark)
	b = netlink.AppendUint32(b, unix.NFTA_CHAIN_POLICY, policyAccept)
	return netlink.AppendText(b, unix.NFTA_CHAIN_TYPE, h.kind)
}

// chain builds a chain.
type chain struct {
	name string
	body []byte
	refs []dataplane.ID
}

func newChain(name string) *chain { return &chain{name: name, refs: []dataplane.ID{tableID}} }

// newBaseChain builds a chain that packets come to by themselves.
func newBaseChain(name string, h hook) *chain {
	c := newChain(name)
	c.body = netlink.AppendBytes(c.body, bodyChain, h.attrs())
	return c
}

// add puts a rule at the end.
func (c *chain) add(r *rule) *chain {
	b, mark := netlink.Nest(c.body, bodyRule)
	c.body = netlink.End(r.body(b), mark)
	return c
}

// needs says what the rules refer to.
func (c *chain) needs(ids ...dataplane.ID) *chain {
	c.refs = append(c.refs, ids...)
	return c
}

func (c *chain) object() dataplane.Object {
	return dataplane.Object{ID: chainID(c.name), Kind: dataplane.Owned, Body: string(c.body), Refs: c.refs}
}

// normalChain gives the attributes of a base chain that the kernel has described,
// and none for a regular chain.
func normalChain(attrs []byte) []byte {
	hooked := netlink.Find(attrs, unix.NFTA_CHAIN_HOOK).Data
	if hooked == nil {
		return nil
	}
	b, mark := netlink.Nest(nil, unix.NFTA_CHAIN_HOOK)
	for attr := range netlink.Attrs(hooked) {
		b = netlink.AppendBytes(b, attr.Type, attr.Data)
	}
	b = netlink.End(b, mark)
	b = netlink.AppendBytes(b, unix.NFTA_CHAIN_POLICY, netlink.Find(attrs, unix.NFTA_CHAIN_POLICY).Data)
	return netlink.AppendText(b, unix.NFTA_CHAIN_TYPE, netlink.Find(attrs, unix.NFTA_CHAIN_TYPE).Text())
}

// chainParts gives the attributes of the chain itself, and of each rule.
func chainParts(body string) (base []byte, rules [][]byte) {
	for attr := range netlink.Attrs([]byte(body)) {
		if attr.Type == bodyChain {
			base = attr.Data
		} else {
			rules = append(rules, attr.Data)
		}
	}
	return base, rules
}
