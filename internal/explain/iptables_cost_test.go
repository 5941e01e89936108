// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/internal/render"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

// TestIPTRules_FilterRulesPassed: a packet of state NEW passes few rules of the filter table, independent of the number
// of Services: the hooks, which are kube-proxy's, and KUBE-FORWARD, and few more if frontends are refused. Each packet
// of a flow without answers (statsd, syslog) has this state.
func TestIPTRules_FilterRulesPassed(t *testing.T) {
	forward, output, input := iptCall{"forward", "filter", "FORWARD"}, iptCall{"output", "filter", "OUTPUT"}, iptCall{"input", "filter", "INPUT"}
	for _, one := range []struct {
		services, refused        int
		forwarded, sent, arrived int
	}{
		// FORWARD has four hooks, OUTPUT three, INPUT four; KUBE-FORWARD has three rules.
		{100, 0, 7, 3, 4},
		{1000, 0, 7, 3, 4},
		// Some are refused: one rule before each tree, and one that leads to the next tree. A forwarded
		// packet meets the trees of external frontends twice.
		{100, 5, 7 + 2 + 2*3, 3 + 2 + 3, 4 + 3},
		{1000, 50, 7 + 2 + 2*3, 3 + 2 + 3, 4 + 3},
	} {
		var all []*serviceMade
		for i := range one.services {
			s := made(fmt.Sprintf("s%d", i), "10.244.1.5").external(false)
			s.spec.ClusterIPs[service.IPv4] = netip.AddrFrom4([4]byte{172, 30, byte(i >> 8), byte(i)})
			s.spec.ExternalIPs[service.IPv4] = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})}
			s.spec.LoadBalancerVIPs[service.IPv4] = nil
			s.spec.Ports[0].NodePort = uint16(30000 + i)
			if i < one.refused {
				s.slice.Endpoints = nil
			}
			all = append(all, s)
		}
		state := newState(IPTables, all...)
		state.Facts.NodePorts[service.IPv4].All = true
		renderer, layout := state.Domain(service.IPv4)
		objects := render.Objects(renderer, layout, render.Views(state.Services.(*source.Cache), state.Facts), state.Facts)
		for call, want := range map[iptCall]int{forward: one.forwarded, output: one.sent, input: one.arrived} {
			w := iptWalk{rules: newIPTRules(objects, state.Addresses)}
			statsd := iptBranch{
				src: netip.MustParseAddrPort("10.244.1.5:1000"), dst: netip.MustParseAddrPort("10.244.2.9:8125"),
				protocol: service.UDP, in: "veth0", probability: 1,
			}
			w.calls([]iptBranch{statsd}, call)
			if w.err != nil || w.passed != want {
				t.Errorf("%d Services, %d refused: a datagram passes %d rules in %s, want %d (%v)",
					one.services, one.refused, w.passed, call.chain, want, w.err)
			}
		}
	}
}
