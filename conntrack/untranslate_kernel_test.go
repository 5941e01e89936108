package conntrack_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/conntrack"
)

// TestKernelUntranslate: the translated flows to a destination go, and no others.
func TestKernelUntranslate(t *testing.T) {
	eachFamily(t, func(w *world) {
		w.serve(w.view(w.a))
		w.dial(w.clusterIP, servicePort).expect("a", "at first")
		w.dial(w.clusterIP, servicePort).expect("a", "another client")
		kept := w.dial(w.external, servicePort)
		kept.expect("a", "at another address")
		untranslate := func(want int, what string) {
			t.Helper()
			n, err := conntrack.Untranslate(t.Context(), w.family, func(at netip.AddrPort) bool {
				return at == netip.AddrPortFrom(w.clusterIP, servicePort)
			}, w.node.Do)
			if err != nil || n != want {
				t.Errorf("%s: %d flows, want %d: %v", what, n, want, err)
			}
		}
		untranslate(2, "at first")
		untranslate(0, "again")
		kept.expect("a", "and its flow is there")
	})
}
