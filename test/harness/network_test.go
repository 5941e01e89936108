// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestNetwork_ConnectsEveryone: without a proxy, every client reaches every pod directly, with its own address.
func TestNetwork_ConnectsEveryone(t *testing.T) {
	n := networkFor(t)
	for _, pod := range n.Pods() {
		for _, addr := range []netip.Addr{pod.V4, pod.V6} {
			for _, client := range []*Host{n.X, n.P1, n.N1, n.N2, n.API} {
				answer, err := netnstest.Ask(t.Context(), client, "tcp", netip.AddrPortFrom(addr, BackendPort))
				if err != nil || answer.Backend != pod.Name() {
					t.Errorf("%s to %s: %+v, %v", client.Name(), pod.Name(), answer, err)
					continue
				}
				if client != n.N1 && client != n.N2 && answer.Client.Addr() != client.V4 && answer.Client.Addr() != client.V6 {
					t.Errorf("%s to %s: seen as %s, want %s or %s", client.Name(), pod.Name(), answer.Client, client.V4, client.V6)
				}
			}
		}
	}
}

// TestNetwork_ForgottenFlowsTranslated: a datagram of a flow that was not translated at first is translated only after
// the router forgot the flow.
func TestNetwork_ForgottenFlowsTranslated(t *testing.T) {
	n := networkFor(t)
	feed(t, n.N1, `table ip t {
	chain prerouting { type nat hook prerouting priority -100; }
	chain forward { type filter hook forward priority 0; ct state new counter; }
}
`, "nft", "-f", "-")
	flow, err := netnstest.OpenFlow(t.Context(), n.X.Namespace, netip.AddrPort{}, netip.MustParseAddrPort("172.30.0.9:80"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = flow.Close() }) // nothing is left to be lost
	answered := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), quickMax)
		defer cancel()
		_, err := flow.Ask(ctx)
		return err == nil
	}
	if answered() {
		t.Fatal("an answer before there is a rule")
	}
	feed(t, n.N1, "add rule ip t prerouting meta l4proto udp ip daddr 172.30.0.9 dnat to "+n.A.V4.String()+":8080", "nft", "-f", "-")
	if answered() {
		t.Error("the rule is used for a flow that was not translated before")
	}
	if err := netnstest.FlushConntrack(n.N1.Namespace); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "an answer after the flow was forgotten", answered)
}
