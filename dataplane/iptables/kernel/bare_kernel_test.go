// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/service"
)

// TestKernelDrift_NoServiceWorks: a reading reports a family without its hooks, its first chain or its chains of
// Services as one without rules. Leftovers in the filter table and foreign rules in the nat table make no difference.
func TestKernelDrift_NoServiceWorks(t *testing.T) {
	onFamilies(t, []service.Family{service.IPv4}, func(k *kernelTest) {
		p := newPipeline(k, 0)
		denying := aService(8, 1, 80, 3, 0)
		port := &denying.Ports[service.IPv4][0]
		port.ExternalIPs = []netip.Addr{netip.MustParseAddr("198.18.0.8")}
		port.DenyRanges = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		iptables := func(args ...string) { k.run(k.tool.programs.iptables, append([]string{"-t", "nat"}, args...)...) }
		chainOf := func(view *service.View) string {
			for _, o := range p.renderer.Service(k.Context(), view, &p.facts) {
				if strings.HasPrefix(o.ID.Name, "KUBE-SVC-") {
					return o.ID.Name
				}
			}
			return ""
		}
		observe := func() ledger.Drift {
			objects, err := k.writer.Read(k.Context())
			if err != nil {
				k.Fatal(err)
			}
			return p.ledger.Observe(objects)
		}
		for _, c := range []struct {
			name          string
			damage        func()
			bare, emptied bool
		}{
			{"nothing", func() {}, false, false},
			{"a rule is added", func() { iptables("-A", "KUBE-SERVICES", "-d", "192.0.2.1/32", "-j", "RETURN") }, false, false},
			{"one Service is gone", func() { iptables("-F", chainOf(aService(7, 1, 80, 3, 0))) }, false, false},
			{"the table is empty", func() { iptables("-F"); iptables("-X") }, true, true},
			{"the table has a chain of another program", func() { iptables("-F"); iptables("-X"); iptables("-N", "KUBE-SVC-OTHERSCHAIN0000") }, true, true},
			{"no hook", func() { iptables("-F", "PREROUTING"); iptables("-F", "OUTPUT") }, true, true},
			{"the first chain is empty", func() { iptables("-F", "KUBE-SERVICES") }, true, true},
		} {
			p.serve(aService(7, 1, 80, 3, 0))
			p.serve(denying)
			for {
				if _, receipt := p.write(); len(receipt.Certain) == 0 {
					break
				}
			}
			c.damage()
			if drift := observe(); drift.Bare != c.bare || drift.Emptied != c.emptied {
				k.Errorf("%s: bare %t, emptied %t: %+v", c.name, drift.Bare, drift.Emptied, drift)
			}
		}
	})
}
