// SPDX-License-Identifier: Apache-2.0

package render

import (
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/tree"
)

// Counted is what the counters of the rules in a chain count.
type Counted uint8

const (
	CountsNothing Counted = iota
	// CountsConnections: a rule translates to an endpoint, or jumps to the chain of one.
	CountsConnections
	// CountsSticky: the rule translates to the one endpoint of its chain (ClientIP affinity).
	CountsSticky
	// CountsDispatch: a rule sends packets to a frontend to the chains of a service port.
	CountsDispatch
	// CountsNoEndpoints and CountsOutOfRange: a rule refuses packets to a frontend.
	CountsNoEndpoints
	CountsOutOfRange
)

// countedContainers are the containers whose elements matter for counts.
var countedContainers = []struct {
	tree.Container
	what Counted
}{
	{natServices, CountsDispatch}, {natNodePorts, CountsDispatch},
	{filterServices, CountsNoEndpoints}, {filterExternal, CountsNoEndpoints}, {filterNodePorts, CountsNoEndpoints},
	{filterFirewall, CountsOutOfRange},
}

// CountedIn returns what rules in a chain count, and whether their frontends are node ports.
func CountedIn(chain dataplane.ID) (what Counted, nodePorts bool) {
	for _, c := range countedContainers {
		if c.Composes(chain) {
			return c.what, c.Shape == tree.ByPort
		}
	}
	switch {
	case chain.Container != string(NAT) || PortOf(chain.Name) == "":
		return CountsNothing, false
	case strings.HasPrefix(chain.Name, prefixEndpoint):
		return CountsSticky, false
	case strings.HasPrefix(chain.Name, prefixCluster), strings.HasPrefix(chain.Name, prefixLocal):
		return CountsConnections, false
	}
	return CountsNothing, false
}

// PortOf returns the hash in the name of a chain: of a service port or, if IsEndpoint, of an endpoint. It
// returns "" for other chains.
func PortOf(chain string) string {
	for _, prefix := range [...]string{prefixCluster, prefixLocal, prefixExternal, prefixSourceRanges, prefixEndpoint} {
		if hash, ok := strings.CutPrefix(chain, prefix); ok && len(hash) == hashChars && !strings.Contains(hash, "-") {
			return hash
		}
	}
	return ""
}

// IsEndpoint reports whether a chain is for one endpoint of a service port.
func IsEndpoint(chain string) bool { return strings.HasPrefix(chain, prefixEndpoint) }
