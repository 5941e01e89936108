// SPDX-License-Identifier: Apache-2.0

package balance

import (
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/service"
)

// TestOutliers_PickedUpConnections: connections whose conntrack entries were lost make no suspect of the endpoint that
// they reach next, which resets them or seems silent to the kernel. They still count as open.
func TestOutliers_PickedUpConnections(t *testing.T) {
	for _, least := range []bool{false, true} {
		w, s, now, begin := observed()
		w.need(s, true, least)
		happen := func(c int, kind conntrack.EventKind, state string) {
			e := conntrack.TableEvent{Kind: kind, Key: s.key, At: now}
			e.State, e.Protocol, e.Answerer = state, service.TCP.Number(), endpointOf(1)
			e.From, e.To = netip.AddrPortFrom(client(c), 999), netip.MustParseAddrPort("172.30.0.1:80")
			w.handle(&e)
		}
		for c := range 8 {
			s.outliers.answered(client(c), endpointOf(0), now)
			happen(c, conntrack.Began, "ESTABLISHED")
		}
		if want := map[bool]int{true: 8}[least]; s.endpoints[endpointOf(1)].open != want {
			t.Errorf("leastConnections %t: %d open connections count, want %d", least, s.endpoints[endpointOf(1)].open, want)
		}
		for c := range 4 {
			happen(c, conntrack.Changed, "CLOSE")
			happen(c, conntrack.Ended, "CLOSE")
		}
		for range 20 {
			now = now.Add(look)
			w.silence(now)
		}
		if got := s.outliers.accused(); got != nil {
			t.Errorf("leastConnections %t: accused are %v", least, got)
		}
		for c := range 3 {
			begin(c, 1)
		}
		w.silence(now.Add(patience))
		if got := s.outliers.accused(); len(got) != 1 {
			t.Errorf("leastConnections %t: accused are %v after connections without an answer", least, got)
		}
	}
}
