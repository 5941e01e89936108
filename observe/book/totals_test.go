// SPDX-License-Identifier: Apache-2.0

package book

import (
	"testing"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/supervisor"
)

// TestTotals_BalancedServices: each Service counts once, for its last balancing, regardless of its families and
// changes.
func TestTotals_BalancedServices(t *testing.T) {
	b := newBook(4)
	program := func(n int, by service.Balancing) {
		for _, family := range service.Families {
			b.Programmed(t.Context(), family, service.View{Key: serviceKey(n), Balancing: by})
		}
	}
	counts := func(want ...int) {
		t.Helper()
		for i, n := range want {
			if by := service.Balancing(i + 1); b.Totals().Balanced[by] != n {
				t.Errorf("%v: %d Services, want %d", by, b.Totals().Balanced[by], n)
			}
		}
	}
	program(0, service.RoundRobin)
	program(1, service.RoundRobin)
	program(2, service.LeastConnections)
	program(3, service.Random)
	counts(2, 0, 0, 1)
	program(1, service.SourceHash)
	program(0, service.Random)
	counts(0, 1, 0, 1)
	b.Supervisor(about(2, supervisor.Ended{}))
	program(2, service.LeastConnections) // too late
	counts(0, 1, 0, 0)
}
