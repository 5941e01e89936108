// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/observe/book"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// stumblingWriter fails whenever a batch writes something of one Service.
type stumblingWriter struct {
	dataplane.Writer
	over    service.Key
	outcome dataplane.Outcome
}

func (w stumblingWriter) Write(ctx context.Context, b *dataplane.Batch) dataplane.Receipt {
	if !slices.ContainsFunc(b.Changes, func(c dataplane.Change) bool { return c.Owner == w.over && c.After != nil }) {
		return w.Writer.Write(ctx, b)
	}
	r := dataplane.Receipt{Outcome: w.outcome, Err: errors.New("cannot allocate memory"), Certain: map[dataplane.ID]*dataplane.Object{}}
	for _, c := range b.Changes {
		r.Certain[c.ID] = c.Before
	}
	return r
}

// reaches reports whether a client of a Service reaches an endpoint.
func reaches(kernel *nftmodel.Kernel, i int, endpoint netip.AddrPort) bool {
	return leads(kernel, workSpec(i).ClusterIPs[service.IPv4], endpoint)
}

// leads reports whether clients of an address reach an endpoint.
func leads(kernel *nftmodel.Kernel, to netip.Addr, endpoint netip.AddrPort) bool {
	return slices.ContainsFunc(kernel.Outcomes(nftmodel.Packet{Src: netip.MustParseAddrPort("10.244.1.9:40000"),
		Dst: netip.AddrPortFrom(to, 80), Protocol: service.TCP, In: "veth", Out: "eth0"}),
		func(o nftmodel.Outcome) bool { return o.To == endpoint })
}

// TestProxy_FailingWritesHarmNoOtherService: when each write of a new Service fails, as busy or without an answer, the
// other Services can still change, /livez stays healthy, and health names the Service and the reason.
func TestProxy_FailingWritesHarmNoOtherService(t *testing.T) {
	for _, outcome := range []dataplane.Outcome{dataplane.Busy, dataplane.Unknown} {
		t.Run(outcome.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kernel := nftmodel.NewKernel()
				d := memoryDomain(kernel)
				d.Writer.Write = stumblingWriter{d.Writer, workSpec(99).Key, outcome}.Write
				var p *proxy.Proxy
				remembered := book.New(book.Config{Status: func() []aggregator.Status { return p.Status() }})
				monitor := health.NewMonitor(health.Config{SyncPeriod: 30 * time.Second, Book: remembered,
					Node: func() *service.NodeObject { return &service.NodeObject{Name: "n1"} },
					Domains: func() []health.DomainStatus {
						return []health.DomainStatus{{Status: p.Status()[0], Family: service.IPv4}}
					}})
				var cache *source.Cache
				assigned := make(chan struct{})
				var stop func()
				p, stop = run(t, proxy.Config{Domains: []proxy.Domain{d}, Listeners: []observe.Listener{remembered},
					Source: filled(&cache, func(c *source.Cache) {
						<-assigned
						for i := range 10 {
							c.SetSpec(workSpec(i))
							c.SetSlice(workSlice(i, 1))
						}
						c.Prime()
					})})
				close(assigned)
				time.Sleep(time.Minute)
				synctest.Wait()
				cache.SetSpec(workSpec(99))
				cache.SetSlice(workSlice(99, 1))
				time.Sleep(time.Second)
				cache.SetSlice(workSlice(0, 2)) // the endpoint of Service 0 is replaced
				served := time.Duration(0)
				for began := time.Now(); time.Since(began) < 10*time.Minute; time.Sleep(100 * time.Millisecond) {
					if !monitor.Healthy() {
						t.Fatalf("/livez fails after %v", time.Since(began))
					}
					if served == 0 && reaches(kernel, 0, netip.MustParseAddrPort("10.0.0.2:8080")) {
						served = time.Since(began)
					}
				}
				if served == 0 || served > 5*time.Second {
					t.Errorf("the new endpoint of another Service serves after %v", served)
				}
				found := monitor.Report().Findings
				if len(found) != 1 || found[0].Kind != health.Quarantined || found[0].Services[0].Service != workSpec(99).Key.String() ||
					found[0].Services[0].Reason != "does not land: "+outcome.String()+": cannot allocate memory" {
					t.Errorf("health finds %+v, want the Service in quarantine, and why", found)
				}
				stop()
			})
		})
	}
}
