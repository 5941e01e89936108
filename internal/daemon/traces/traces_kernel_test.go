// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/sluice-proxy/sluice/aggregator"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestKernelTraces_ChangeSpans: when a proxy writes a change to the rules of a namespace, a receiver gets its spans.
func TestKernelTraces_ChangeSpans(t *testing.T) {
	testenv.NeedsRoot(t)
	node, err := netns.New("node")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	to := newReceiver(t)
	traces := New(config(to.URL, 1_000_000))
	var cache *source.Cache
	primed := make(chan struct{})
	p, err := proxy.New(proxy.Config{
		Node: proxy.NodeSettings{Name: "n1"}, Listeners: []observe.Listener{traces},
		Domains: []proxy.Domain{{
			Name: domain4, Family: service.IPv4, Renderer: nftrender.NewRenderer(service.IPv4, nftrender.Options{MasqueradeBit: 14}),
			Writer: nftkernel.NewWriter(service.IPv4, nftkernel.WriterConfig{Inside: node.Do}).Contract(), Pace: aggregator.Pace{Audit: time.Hour},
		}},
		Source: func(ctx context.Context, c *source.Cache) error {
			cache = c
			c.SetNode(&service.NodeObject{Name: "n1"})
			c.SetSpec(&service.Spec{Key: web, Ports: []service.Port{{Name: "http", Port: 80}},
				ClusterIPs: service.PerFamily[netip.Addr]{service.IPv4: netip.MustParseAddr("172.30.0.1")}})
			c.Prime()
			close(primed)
			<-ctx.Done()
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	running(t, traces.Run)
	running(t, func(ctx context.Context) {
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	<-primed
	<-p.FirstSync()
	triggered := time.Now().Round(0) // an annotation has no monotonic clock
	time.Sleep(time.Millisecond)
	cache.SetSlice(&service.Slice{Service: web, Name: "web-1", Trigger: triggered, Ports: []service.SlicePort{{Name: "http", Port: 8080}},
		Endpoints: []service.SliceEndpoint{{Addr: netip.MustParseAddr("10.0.0.1"), Ready: true, Serving: true}}})

	spans := to.change(t, func(root *tracepb.Span) bool { return slices.Contains(causes(root), "endpoints") })
	root := spans["change"]
	if got := root.GetStartTimeUnixNano(); got != uint64(triggered.UnixNano()) {
		t.Errorf("the change begins at %d, triggered at %d", got, triggered.UnixNano())
	}
	before := root.GetStartTimeUnixNano()
	for _, name := range []string{"watch", "actor", "render", "batch", "kernel"} {
		s := spans[name]
		if string(s.GetParentSpanId()) != string(root.GetSpanId()) || s.GetStartTimeUnixNano() != before || s.GetEndTimeUnixNano() < before {
			t.Errorf("span %s: begins %d ns after the end of the one before, lasts %d ns, parent %x, root %x", name, s.GetStartTimeUnixNano()-before,
				int64(s.GetEndTimeUnixNano()-s.GetStartTimeUnixNano()), s.GetParentSpanId(), root.GetSpanId())
		}
		before = s.GetEndTimeUnixNano()
	}
	kernel, write, ack := spans["kernel"], spans["write"], spans["ack"]
	if before != root.GetEndTimeUnixNano() || string(write.GetParentSpanId()) != string(kernel.GetSpanId()) || string(ack.GetParentSpanId()) != string(kernel.GetSpanId()) ||
		write.GetStartTimeUnixNano() != kernel.GetStartTimeUnixNano() || write.GetEndTimeUnixNano() != ack.GetStartTimeUnixNano() ||
		ack.GetEndTimeUnixNano() != kernel.GetEndTimeUnixNano() || write.GetEndTimeUnixNano() <= write.GetStartTimeUnixNano() {
		t.Errorf("kernel %v\nwrite %v\nack %v", kernel, write, ack)
	}
	for name, want := range map[string]string{"k8s.namespace.name": "shop", "k8s.service.name": "web", "sluice.mode": "nftables", "sluice.domain": domain4,
		"sluice.family": service.IPv4.String(), "sluice.outcome": "applied"} {
		if got := valueOf(root, name).GetStringValue(); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if valueOf(kernel, "sluice.batch.bytes").GetIntValue() == 0 || valueOf(kernel, "sluice.batch.objects").GetIntValue() == 0 || valueOf(root, "sluice.endpoints").GetIntValue() != 1 {
		t.Errorf("kernel %v\nchange %v", kernel, root)
	}
	if got := to.resource("k8s.node.name"); got != "n1" {
		t.Errorf("the node is %q", got)
	}
}
