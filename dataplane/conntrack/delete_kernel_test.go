// SPDX-License-Identifier: Apache-2.0

package conntrack_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
)

// TestKernelDeleteUDP: DeleteUDP deletes the translated flows to a destination, and no others.
func TestKernelDeleteUDP(t *testing.T) {
	eachFamily(t, func(w *world) {
		w.serve(w.view(w.a))
		w.dial(w.clusterIP, servicePort).expect("a", "at first")
		w.dial(w.clusterIP, servicePort).expect("a", "another client")
		kept := w.dial(w.external, servicePort)
		kept.expect("a", "at another address")
		remove := func(want int, what string) {
			t.Helper()
			n, err := conntrack.DeleteUDP(t.Context(), w.family, func(d conntrack.Direction) bool {
				if !d.From.IsValid() || d.From.Port() == 0 {
					t.Errorf("a flow of %v", d.From)
				}
				return d.Translated && d.To == netip.AddrPortFrom(w.clusterIP, servicePort)
			}, w.node.Do)
			if err != nil || n != want {
				t.Errorf("%s: %d flows, want %d: %v", what, n, want, err)
			}
		}
		remove(2, "at first")
		remove(0, "again")
		kept.expect("a", "and its flow is there")
	})
}
