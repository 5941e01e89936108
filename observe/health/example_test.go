// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"fmt"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/service"
)

// The kernel rejects a Service: there is a finding, and the node stays healthy.
func Example() {
	monitor := health.NewMonitor(health.Config{
		Domains: func() []health.DomainStatus { // usually from (*proxy.Proxy).Status
			return []health.DomainStatus{{Family: service.IPv4, Status: aggregator.Status{
				Domain: "nftables/IPv4", Open: true,
				Quarantined: []aggregator.QuarantinedKey{{Key: service.Key{Namespace: "ns1", Name: "web"}, Reason: "Invalid argument"}},
			}}}
		},
		Node:       func() *service.NodeObject { return &service.NodeObject{Name: "n1"} }, // usually (*source.Cache).Node
		SyncPeriod: 30 * time.Second,
	})
	report := monitor.Report()
	fmt.Println("healthy:", report.Healthy(), "eligible:", report.NodeEligible)
	for _, f := range report.Findings {
		fmt.Println(f.Kind, f.About, f.Services[0].Service, f.Services[0].Reason)
	}
	// Output:
	// healthy: true eligible: true
	// quarantined nftables/IPv4 ns1/web Invalid argument
}
