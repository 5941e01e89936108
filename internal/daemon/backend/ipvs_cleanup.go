package backend

import (
	"context"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/dataplane/ipvs"
	"github.com/sluice-proxy/sluice/service"
)

// ToldTables is told what was removed from one variant of iptables, in one family.
type ToldTables func(variant string, family service.Family, summary iptables.CleanupSummary)

// CleanUp removes what Sluice (or a kube-proxy) left in iptables and in IPVS, of both
// families, and gives what it removed of the latter. What cannot be removed is in the
// error; the rest is removed all the same.
func CleanUp(ctx context.Context, told ToldTables) (ipvs.CleanupSummary, error) {
	// The rules go before the sets that they ask.
	return ipvs.Cleanup(ctx, func() error { return CleanUpIPTables(ctx, told) })
}
