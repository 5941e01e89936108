// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"fmt"
	"strings"

	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
)

// kept returns the kernel parameters that the proxy needs as long as it serves in a mode.
func (o *Options) kept(mode Mode) (all []backend.Parameter) {
	if o.Sluice.Traffic.Accounting && !mode.Forwards {
		all = append(all, backend.Parameter{Path: accounting, Value: "1", Advice: adviceAccounting})
	}
	if mode.kept != nil {
		all = append(all, mode.kept(o)...)
	}
	return all
}

// KeepSysctls restores the parameters of a mode that another process changed since the start. It returns those that it
// restored, and an error with advice for each that it cannot restore. Call it once the rules are applied, because some
// parameters are safe only with them.
func (o *Options) KeepSysctls(mode Mode, files sysctl.Files) (restored []sysctl.Change, failed []error) {
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
