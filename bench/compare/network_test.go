// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestNetwork_EndpointsAnswerAtEveryAddress: every endpoint address answers with its own address, over TCP and UDP.
func TestNetwork_EndpointsAnswerAtEveryAddress(t *testing.T) {
	testenv.NeedsRoot(t)
	n, err := newNetwork(true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.close(); err != nil {
			t.Error(err)
		}
	}()
	for _, number := range []int{0, 1, 255, 70_000, 4_000_000} {
		for _, addr := range []netip.Addr{endpointAddress(number), endpointAddress6(number)} {
			at := netip.AddrPortFrom(addr, endpointPort)
			for _, network := range []string{"tcp", "udp"} {
				answer, err := netnstest.Ask(t.Context(), n.client, network, at)
				if err != nil || answer.Backend != at.Addr().String() {
					t.Errorf("%s %s: %+v, %v", network, at, answer, err)
				}
			}
		}
	}
	for _, network := range []string{"tcp", "udp"} {
		for _, at := range []string{"172.30.7.8:80", "[fd00:172:30::7]:80"} {
			answer, err := netnstest.Ask(t.Context(), n.client, network, netip.MustParseAddrPort(at))
			if err != nil || !strayed(answer) {
				t.Errorf("%s to a ClusterIP without a rule: %+v, %v; want an answer that says so", network, answer, err)
			}
		}
	}
}
