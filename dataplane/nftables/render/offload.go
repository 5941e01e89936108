// SPDX-License-Identifier: Apache-2.0

package render

import (
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/service"
)

// OffloadFlowtable is the name of the flowtable to which the chain adds connections.
const OffloadFlowtable = "services"

const (
	// priorityOffload is behind the chains of policy engines, so the rule sees only packets that they accept.
	priorityOffload = 300
	// One of offloadSample packets, at random, moves its connection to the flowtable. This excludes most short
	// connections, for which offloading costs more than it saves. Counting the packets of each connection would
	// need net.netfilter.nf_conntrack_acct, which makes every packet of the node more expensive.
	offloadSample = 16
)

// OffloadChain returns the chain that moves established TCP connections with a translated destination to the
// flowtable. Its rule is for both families. It excludes UDP, because Sluice deletes the conntrack entries of UDP
// flows to removed endpoints, and kernels before Linux 6.4 keep the entries of offloaded flows.
func OffloadChain() rules.Chain {
	return newBaseChain("forward", rules.Base{Kind: "filter", Hook: unix.NF_INET_FORWARD, Priority: priorityOffload}).
		add(newRule(dialects[service.IPv4]).
			meta(unix.NFT_META_L4PROTO).cmp([]byte{unix.IPPROTO_TCP}, false).
			translated().established().
			numgen(offloadSample).cmp(hostUint32(0), false).
			offload(OffloadFlowtable)).Chain
}
