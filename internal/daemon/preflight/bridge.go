// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"slices"

	"github.com/sluice-proxy/sluice/internal/host/bridge"
	"github.com/sluice-proxy/sluice/internal/host/needs"
)

// bridges warns of bridges whose pods reach each other without passing the rules. Userspace mode translates nothing, so
// replies need no rules.
func (p *preflight) bridges() {
	const check = "bridges"
	if p.backend.Mode.Forwards {
		return
	}
	found, err := bridge.Find()
	if err != nil {
		p.add(check, Warn, "", "%v", err)
		return
	}
	hasPods := p.options.HasPods(p.backend.Mode)
	found = slices.DeleteFunc(found, func(b bridge.Bridge) bool { return !hasPods(b) })
	for _, b := range found {
		if len(b.Unruled) == 0 {
			p.add(check, OK, "", "%s takes packets between pods through the rules", b.Name)
			continue
		}
		bypass := needs.Bypass(b, b.Unruled)
		p.add(check, Warn, bypass.Do, "%s", bypass.Text)
	}
	if len(found) == 0 {
		p.add(check, OK, "", "none with pods")
	}
}
