package render

import (
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/service"
)

// OffloadFlowtable is the flowtable that the chain adds connections to.
const OffloadFlowtable = "services"

const (
	// priorityOffload is behind the chains of policy engines, so the rule sees only packets that they accept.
	priorityOffload = 300
	// offloadSample is the number of packets of which one, at random, moves its connection to the flowtable. It
	// keeps most short connections out, for which this does not pay. The number of packets of a connection
	// would need net.netfilter.nf_conntrack_acct, which makes every packet of the node more expensive.
	offloadSample = 16
)

// OffloadChain returns the chain that moves established TCP connections with a translated destination to the
// flowtable. Its rule suits both families. UDP stays: Sluice deletes the conntrack entries of UDP flows whose
// endpoint is gone, and kernels before Linux 6.4 keep those of offloaded flows.
func OffloadChain() rules.Chain {
	return newBaseChain("forward", rules.Base{Kind: "filter", Hook: unix.NF_INET_FORWARD, Priority: priorityOffload}).
		add(newRule(dialects[service.IPv4]).
			meta(unix.NFT_META_L4PROTO).cmp([]byte{unix.IPPROTO_TCP}, false).
			translated().established().
			numgen(offloadSample).cmp(hostUint32(0), false).
			offload(OffloadFlowtable)).Chain
}
