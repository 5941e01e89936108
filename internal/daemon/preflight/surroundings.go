// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"

	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/host/bridge"
	"github.com/sluice-proxy/sluice/internal/host/needs"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/service"
)

// surroundings checks what Services need from the node in addition to rules, and lists the chains of other programs
// that Service traffic passes.
func (p *preflight) surroundings(ctx context.Context) {
	const check = "node settings"
	if !p.privileged {
		return // the chains cannot be read
	}
	w := needs.Wants{
		Read: sysctl.Files{}.Read, Legacy: p.backend.Variant != iptkernel.Legacy,
		Pods: func(bridge.Bridge) bool { return false }, // they have a separate check
	}
	if !p.backend.Mode.Forwards {
		w.Families = p.forwarded(ctx)
	}
	n, err := needs.Read(ctx, w)
	if err != nil {
		p.add(check, Warn, "", "%s", setup.OneLine(err))
	}
	for _, problem := range n.Problems {
		p.add(check, Warn, problem.Do, "%s", problem.Text)
	}
	if err == nil && len(n.Problems) == 0 {
		p.add(check, OK, "", "none keeps packets from endpoints")
	}
	for i := range n.Chains {
		p.add("other chains", Info, "", "%s may affect Service traffic", n.Chains[i].Text())
	}
}

// forwarded returns the families whose packets the node has to forward: those of the Node's InternalIPs, or IPv4 without
// an answer of the API server, since many hosts of a cluster without IPv6 have IPv6 addresses.
func (p *preflight) forwarded(ctx context.Context) (needed service.PerFamily[bool]) {
	ctx, cancel := context.WithTimeout(ctx, nodeMax)
	defer cancel()
	node, err := p.theNode(ctx)
	for _, family := range service.Families {
		needed[family] = err != nil && family == service.IPv4 || err == nil && node.Internal[family]
	}
	return needed
}
