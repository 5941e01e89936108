package setup

import (
	"fmt"
	"strings"

	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
)

// kept returns the kernel parameters that the proxy needs as long as it serves in a mode.
func (o *Options) kept(mode config.Mode) (all []backend.Parameter) {
	if o.Sluice.Traffic.Accounting && mode != config.ModeUserspace {
		all = append(all, backend.Parameter{Path: accounting, Value: "1", Advice: adviceAccounting})
	}
	switch mode {
	case config.ModeIPTables:
		if settings, err := o.NodeSettings(mode); err == nil && settings.LocalhostNodePorts {
			all = append(all, backend.Parameter{Path: iptkernel.RouteLocalnet, Value: "1", Advice: iptkernel.AdviceRouteLocalnet})
		}
	case config.ModeIPVS:
		ipvs := o.ipvs(sysctl.Files{}, nil)
		all = append(all, ipvs.Parameters()...)
	case config.ModeUserspace:
		if !o.Sluice.Userspace.AnswerARP {
			all = append(all, backend.StrictARP()...)
		}
	}
	return all
}

// KeepSysctls sets the parameters of a mode again that another process changed since the start. It returns those that it
// has set, and those that it cannot, as errors with the advice. Call it once the rules are applied, because some parameters
// are safe only with them.
func (o *Options) KeepSysctls(mode config.Mode, files sysctl.Files) (restored []sysctl.Change, failed []error) {
	for _, p := range o.kept(mode) {
		name := strings.ReplaceAll(p.Path, "/", ".")
		was, err := files.Read(p.Path)
		if err != nil {
			continue // the kernel unloaded the module, which other findings report
		}
		changed, err := files.Ensure(p.Path, p.Value, p.Advice)
		if err != nil {
			failed = append(failed, fmt.Errorf("another process set %s to %s: %w", name, was, err))
		}
		if changed {
			restored = append(restored, sysctl.Change{Name: name, From: was, To: p.Value})
		}
	}
	return restored, failed
}
