// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/observe/book"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// lockedWriter is a kernel whose lock another program holds at times.
type lockedWriter struct {
	dataplane.Writer
	locked atomic.Bool
}

func (w *lockedWriter) Write(ctx context.Context, b *dataplane.Batch) dataplane.Receipt {
	if !w.locked.Load() {
		return w.Writer.Write(ctx, b)
	}
	r := dataplane.Receipt{Outcome: dataplane.Busy, Err: context.DeadlineExceeded, Certain: map[dataplane.ID]*dataplane.Object{}}
	for _, c := range b.Changes {
		r.Certain[c.ID] = c.Before
	}
	return r
}

// TestKernelPorts_FollowRules: in a whole proxy whose kernel accepts the rules late, ports open, change their answer
// and close when the rules do, and not before.
func TestKernelPorts_FollowRules(t *testing.T) {
	w := newWorld(t)
	writer := &lockedWriter{Writer: nftmodel.NewKernel().Writer(service.IPv4)}
	writer.locked.Store(true)
	var p *proxy.Proxy
	var cache *source.Cache
	remembered := book.New(book.Config{Status: func() []aggregator.Status { return p.Status() }})
	monitor := NewMonitor(Config{
		Book: remembered,
		Domains: func() (all []DomainStatus) {
			for _, s := range p.Status() {
				all = append(all, DomainStatus{Status: s, Family: service.IPv4})
			}
			return all
		},
		Node: func() *service.NodeObject { return cache.Node() }, SyncPeriod: 500 * time.Millisecond,
	})
	config := quiet
	config.Healthy = monitor.Healthy
	ports := w.newPorts(config)
	primed := make(chan struct{})
	p, err := proxy.New(proxy.Config{
		Node: proxy.NodeSettings{Name: "n1"},
		Domains: []proxy.Domain{{
			Name: "memory/IPv4", Family: service.IPv4, Renderer: nftrender.NewRenderer(service.IPv4, nftrender.Options{MasqueradeBit: 14}),
			Writer: dataplane.Writer{Write: writer.Write, Read: writer.Read},
			Pace:   aggregator.Pace{BackoffMin: 10 * time.Millisecond, BackoffMax: 20 * time.Millisecond},
		}},
		Source: func(ctx context.Context, c *source.Cache) error {
			cache = c
			cache.SetNode(&service.NodeObject{Name: "n1"})
			cache.SetSpec(balanced(32000))
			cache.SetSlice(local(1))
			cache.Prime()
			close(primed)
			<-ctx.Done()
			return nil
		},
		ApplyObservers: []proxy.ApplyObserver{{Programmed: ports.Programmed}}, Listeners: []observe.Listener{remembered},
	})
	must(t, err)
	w.run(ports.Run)
	w.run(p.Run)
	<-primed

	w.eventually("the writes that fail make the node unhealthy", func() bool {
		report := monitor.Report()
		return !report.Healthy() && len(report.Findings) == 1 && report.Findings[0].Kind == WriteFailing && report.Findings[0].Unhealthy &&
			strings.Contains(report.Findings[0].Problem, "deadline")
	})
	if !w.closed("127.0.0.1:32000") {
		t.Error("the port is open before the rules are there")
	}
	writer.locked.Store(false)
	answer := w.answers("http://127.0.0.1:32000", 200)
	if !strings.Contains(answer.body, `"localEndpoints": 1`) {
		t.Errorf("got %s", answer.body)
	}

	writer.locked.Store(true)
	cache.SetSlice(local(3))
	w.eventually("the node is unhealthy once more", func() bool { return !monitor.Healthy() })
	if answer = w.answers("http://127.0.0.1:32000", 503); !strings.Contains(answer.body, `"localEndpoints": 1`) || !strings.Contains(answer.body, `"serviceProxyHealthy": false`) {
		t.Errorf("got %s", answer.body)
	}
	writer.locked.Store(false)
	w.eventually("three endpoints are reported", func() bool {
		answer, err := w.get("http://127.0.0.1:32000")
		return err == nil && answer.status == 200 && strings.Contains(answer.body, `"localEndpoints": 3`)
	})
	cache.SetSpec(balanced(32001))
	w.answers("http://127.0.0.1:32001", 200)
	cache.RemoveSpec(balanced(0).Key)
	w.eventually("the port is closed", func() bool { return w.closed("127.0.0.1:32000") && w.closed("127.0.0.1:32001") })
}

// balanced is a Service of type LoadBalancer with externalTrafficPolicy Local.
func balanced(healthPort uint16) *service.Spec {
	return &service.Spec{
		Key:        service.Key{Namespace: "ns1", Name: "svc1"},
		ClusterIPs: service.PerFamily[netip.Addr]{service.IPv4: netip.MustParseAddr("172.30.0.1")},
		Ports:      []service.Port{{Name: "http", Port: 80, NodePort: 30080}}, ExternalLocal: true, HealthCheckNodePort: healthPort,
	}
}

// local is a slice of ready endpoints on this node.
func local(count byte) *service.Slice {
	s := &service.Slice{Service: balanced(0).Key, Name: "svc1-1", Ports: []service.SlicePort{{Name: "http", Port: 8080}}}
	for i := range count {
		s.Endpoints = append(s.Endpoints, service.SliceEndpoint{
			Addr: netip.AddrFrom4([4]byte{10, 0, 0, i + 1}), Location: &service.Location{NodeName: "n1"}, Ready: true, Serving: true,
		})
	}
	return s
}
