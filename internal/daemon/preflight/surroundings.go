package preflight

import (
	"context"

	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	"github.com/sluice-proxy/sluice/internal/host/bridge"
	"github.com/sluice-proxy/sluice/internal/host/needs"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/service"
)

// surroundings checks what Services need of the node besides rules, and lists the chains of other programs that Service
// traffic passes. Which families the Services have is not known, so only IPv4 counts as needed.
func (p *preflight) surroundings(ctx context.Context) {
	const check = "node settings"
	if !p.privileged {
		return // the chains cannot be read
	}
	w := needs.Wants{
		Read: sysctl.Files{}.Read, Legacy: p.backend.Variant != iptkernel.Legacy,
		Pods: func(bridge.Bridge) bool { return false }, // they have a check of their own
	}
	w.Families[service.IPv4] = !p.backend.Mode.Forwards
	n, err := needs.Read(ctx, w)
	if err != nil {
		p.add(check, Warn, "", "%s", oneLine(err))
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
