// SPDX-License-Identifier: Apache-2.0

package reduce

import (
	"net/netip"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// Policy says what objects may ask for. The zero value allows no scheduler, and denies special addresses
// only. It must not be changed while it is in use.
type Policy struct {
	// Addresses are checked for endpoints, external IPs and load balancer IPs. ClusterIPs are not: the
	// API server allocates them.
	Addresses service.AddressPolicy
	// DeniedPorts are the TCP ports that no Service gets at an external IP or a load balancer IP.
	DeniedPorts []uint16
	// Schedulers are the IPVS schedulers that a Service may choose.
	Schedulers []string
	// NoBalancing has the algorithms that the node does not support, with the reason.
	NoBalancing map[service.Balancing]string
	// Unobserved reports whether the node does not observe connections to Services of a namespace, and so avoids no
	// endpoint; nil means that it observes all, or need not do so. UnobservedLeast says that leastConnections needs it.
	Unobserved      func(namespace string) bool
	UnobservedLeast bool
	// Drain is the drain deadline of Services without the annotation; 0 leaves it to the mode.
	Drain time.Duration
	// NoEndpoints has the values that the mode of the node does not support, with the reason.
	NoEndpoints map[service.NoEndpoints]string
	// NoDenyRanges is the reason why the mode of the node cannot deny sources; empty if it can.
	NoDenyRanges string
}

// admits reports whether an address may be used. It warns otherwise; the effect says what happens
// instead.
func (p *Policy) admits(n *notes, where path, effect string, addr netip.Addr) bool {
	err := p.Addresses.Check(addr)
	if err != nil {
		n.add(where, effect, "%v", err)
	}
	return err == nil
}
