// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"golang.org/x/sys/unix"

	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/internal/netlink"
)

// formerScaffold makes the table look as releases have left it that had base chains of type filter (ADR 6), which reject
// in a chain of their own at the forward hook. The chain that this calls rejects nothing yet.
func (s *stack) formerScaffold() error {
	const called = "cluster-ips-check"
	chain := netlink.AppendText(nil, unix.NFTA_RULE_CHAIN, called)
	messages := append([]message{ // another program may have deleted the chain
		{unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, netlink.AppendText(nil, unix.NFTA_CHAIN_NAME, called)},
		{kind: unix.NFT_MSG_DELRULE, attrs: chain},
	}, chainMessages("filter-forward", unix.NF_INET_FORWARD, 0, 0)...)
	return s.commit(nftrender.TableName, append(messages, jumpMessage("filter-forward", called))...)
}

// jumpMessage adds a rule that jumps to another chain.
func jumpMessage(chain, to string) message {
	b := netlink.AppendText(nil, unix.NFTA_RULE_CHAIN, chain)
	b, list := netlink.Nest(b, unix.NFTA_RULE_EXPRESSIONS)
	b, element := netlink.Nest(b, unix.NFTA_LIST_ELEM)
	b = netlink.AppendText(b, unix.NFTA_EXPR_NAME, "immediate")
	b, data := netlink.Nest(b, unix.NFTA_EXPR_DATA)
	b = netlink.AppendUint32(b, unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
	b, value := netlink.Nest(b, unix.NFTA_IMMEDIATE_DATA)
	b, verdict := netlink.Nest(b, unix.NFTA_DATA_VERDICT)
	jump := int32(unix.NFT_JUMP)
	b = netlink.AppendUint32(b, unix.NFTA_VERDICT_CODE, uint32(jump))
	b = netlink.AppendText(b, unix.NFTA_VERDICT_CHAIN, to)
	for _, mark := range []int{verdict, value, data, element, list} {
		b = netlink.End(b, mark)
	}
	return message{unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE | unix.NLM_F_APPEND, b}
}
