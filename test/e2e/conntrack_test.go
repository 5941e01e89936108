// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/test/harness"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// flows are clients that never close their sockets.
type flows []*netnstest.Flow

// openFlows opens a flow from each client to each target that takes UDP.
func openFlows(t *testing.T, clients []*harness.Host, targets []harness.Target) flows {
	t.Helper()
	var all flows
	for _, client := range clients {
		for _, target := range targets {
			if target.Network != "udp" {
				continue
			}
			flow, err := netnstest.OpenFlow(t.Context(), client.Namespace, netip.AddrPort{}, target.Addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := flow.Close(); err != nil {
					t.Error(err)
				}
			})
			all = append(all, flow)
		}
	}
	return all
}

// await waits until a pod answers every flow, three times in a row.
func (f flows) await(t *testing.T, what string, want *harness.Host) {
	t.Helper()
	harness.Eventually(t, what, func(ctx context.Context) error {
		for range 3 {
			for _, flow := range f {
				got, err := askFlow(ctx, flow)
				if err != nil {
					return err
				}
				if got != want.Name() {
					return fmt.Errorf("%s: %s answered, want %s", flow, got, want.Name())
				}
			}
		}
		return nil
	})
}

// askFlow sends one datagram and returns the name of the pod that answers.
func askFlow(ctx context.Context, flow *netnstest.Flow) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	answer, err := flow.Ask(ctx)
	return answer.Backend, err
}
