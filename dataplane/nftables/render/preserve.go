// SPDX-License-Identifier: Apache-2.0

package render

import (
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/service"
)

// PreserveChains returns the chains of the table that keeps open connections as they are.
func PreserveChains(family service.Family) (chains []rules.Chain) {
	for _, at := range []struct {
		name string
		base rules.Base
	}{
		{"prerouting", natAt(unix.NF_INET_PRE_ROUTING, priorityDNAT)},
		{"output", natAt(unix.NF_INET_LOCAL_OUT, priorityDNAT)},
		{"input", natAt(unix.NF_INET_LOCAL_IN, prioritySNAT)},
		{"postrouting", natAt(unix.NF_INET_POST_ROUTING, prioritySNAT)},
	} {
		// The kernel tracks connections as long as a rule reads their state.
		chains = append(chains, newBaseChain(at.name, at.base).add(newRule(dialects[family]).translated()).Chain)
	}
	return chains
}
