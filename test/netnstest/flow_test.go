// SPDX-License-Identifier: Apache-2.0

package netnstest

import (
	"net/netip"
	"testing"
)

// TestFlow_KeepsPort: a flow keeps its port while the server at its target changes, and ignores answers to earlier
// datagrams.
func TestFlow_KeepsPort(t *testing.T) {
	n := New(t, "n")
	target := netip.MustParseAddrPort("127.0.0.1:5353")
	flow, err := OpenFlow(t.Context(), n, netip.AddrPort{}, target)
	if err != nil {
		t.Fatal(err)
	}
	defer flow.Close() // nothing left to lose
	port := flow.Local()
	if answer, err := flow.Ask(t.Context()); err == nil {
		t.Errorf("%+v answered, want none", answer)
	}
	for _, want := range []string{"one", "two"} {
		b, err := StartBackend(n, want, target)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got, err := flow.Ask(t.Context()); err != nil || got.Backend != want {
				t.Errorf("%+v answered, %v; want %s", got, err, want)
			}
		}
		if err := flow.Send(); err != nil { // an answer for the next Ask to skip
			t.Error(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if now := flow.Local(); now != port {
		t.Errorf("the flow moved from %s to %s", port, now)
	}
}
