// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// memoryDomain is a domain over a kernel in memory that is not audited by itself. Its writer has no Watch, for which a
// kernel in memory has no socket.
func memoryDomain(kernel *nftmodel.Kernel) proxy.Domain {
	writer := nftkernel.NewWriter(service.IPv4, nftkernel.WriterConfig{Open: kernel.Open})
	return proxy.Domain{
		Name: "memory/IPv4", Family: service.IPv4,
		Renderer: nftrender.NewRenderer(service.IPv4, nftrender.Options{MasqueradeBit: 14}),
		Writer:   dataplane.Writer{Write: writer.Write, Read: writer.Read, Origin: nftrender.Origin{}},
		Pace:     aggregator.Pace{Audit: 24 * time.Hour},
	}
}

// run runs a proxy until stop is called.
func run(t *testing.T, config proxy.Config) (p *proxy.Proxy, stop func()) {
	t.Helper()
	if config.Node.Name == "" {
		config.Node.Name = "n1"
	}
	p, err := proxy.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return p, running(t, p)
}

// running runs a proxy until stop.
func running(t *testing.T, p *proxy.Proxy) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// filled is a source that fills the cache once. It keeps the cache for the test.
func filled(into **source.Cache, fill func(*source.Cache)) proxy.Source {
	return func(ctx context.Context, c *source.Cache) error {
		*into = c
		fill(c)
		<-ctx.Done()
		return nil
	}
}

func workSpec(i int) *service.Spec {
	return &service.Spec{
		Key:        service.Key{Namespace: "ns", Name: fmt.Sprintf("s%05d", i)},
		ClusterIPs: service.PerFamily[netip.Addr]{service.IPv4: netip.AddrFrom4([4]byte{172, 30, byte(i >> 8), byte(i)})},
		Ports:      []service.Port{{Name: "http", Port: 80}},
	}
}

func workSlice(i int, hosts ...byte) *service.Slice {
	key := workSpec(i).Key
	s := &service.Slice{Service: key, Name: key.Name, Ports: []service.SlicePort{{Name: "http", Port: 8080}}}
	for _, host := range hosts {
		s.Endpoints = append(s.Endpoints, service.SliceEndpoint{
			Addr: netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), host}), Ready: true, Serving: true,
		})
	}
	return s
}
