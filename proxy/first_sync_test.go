// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// brokenSocket fails some of its transactions with ENOBUFS.
type brokenSocket struct {
	nftkernel.Socket
	fails func() bool
}

func (s brokenSocket) Commit(t *wire.Transaction) ([]*wire.Rejection, error) {
	if s.fails() {
		return nil, &netlink.NotSentError{Err: unix.ENOBUFS}
	}
	return s.Socket.Commit(t)
}

// firstSync is a start of the proxy in which not all goes well.
type firstSync struct {
	services int
	// rejected are the numbers of the Services that the kernel rejects; vague means that
	// it does not say which.
	rejected []int
	vague    bool
	// scaffold means that the kernel has the rules of a process that served no Service.
	scaffold bool
	// transactionBytes divides the first batch. Transactions from skip on fail, times times.
	transactionBytes, skip, times int
	// hung are the numbers of the Services whose rendering hangs, and takes how long the gate
	// waits for them.
	hung []int
	gate time.Duration
	// large are the numbers of the Services that ask for too much.
	large []int
}

func (c firstSync) fill(cache *source.Cache) {
	for i := range c.services {
		spec := workSpec(i)
		for j := range 100 {
			if slices.Contains(c.large, i) {
				spec.ExternalIPs[service.IPv4] = append(spec.ExternalIPs[service.IPv4], netip.AddrFrom4([4]byte{198, 18, 0, byte(j)}))
			}
		}
		cache.SetSpec(spec)
		cache.SetSlice(workSlice(i, 1))
	}
	cache.Prime()
}

// domain returns a domain over a kernel for which the writes take 100 ms and fail as described.
func (c firstSync) domain(kernel *nftmodel.Kernel) proxy.Domain {
	commits := 0
	writer := nftkernel.NewWriter(service.IPv4, nftkernel.WriterConfig{TransactionBytes: c.transactionBytes,
		Open: func() (nftkernel.Socket, error) {
			socket, err := kernel.Open()
			return brokenSocket{socket, func() bool {
				commits++
				return commits > c.skip && commits <= c.skip+c.times
			}}, err
		}})
	d := memoryDomain(kernel)
	d.Writer.Read = writer.Read
	d.Writer.Write = func(ctx context.Context, b *dataplane.Batch) dataplane.Receipt {
		time.Sleep(100 * time.Millisecond)
		return writer.Write(ctx, b)
	}
	return d
}

// hangingRenderer hangs when it renders some Services.
type hangingRenderer struct {
	dataplane.Renderer
	keys map[service.Key]bool
	quit chan struct{}
}

func (r hangingRenderer) Service(ctx context.Context, v *service.View, f *service.NodeFacts) []dataplane.Object {
	if r.keys[v.Key] {
		<-r.quit
	}
	return r.Renderer.Service(ctx, v, f)
}

// served returns how many Services the kernel serves when the first sync is complete, and how
// long that took.
func (c firstSync) served(t *testing.T) (served int, took time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		kernel := nftmodel.NewKernel()
		if c.scaffold {
			_, stop := run(t, proxy.Config{Domains: []proxy.Domain{memoryDomain(kernel)},
				Source: filled(new(*source.Cache), func(cache *source.Cache) { cache.Prime() })})
			time.Sleep(time.Minute)
			stop()
		}
		rejected := map[string]bool{}
		for _, i := range c.rejected {
			rejected[string(workSpec(i).ClusterIPs[service.IPv4].AsSlice())] = true
		}
		kernel.SetVague(c.vague)
		kernel.SetRejected(func(e nftmodel.Name) bool {
			return e.Set == nftrender.SetName("frontends") && len(e.Key) > 4 && rejected[e.Key[:4]]
		})
		d, quit := c.domain(kernel), make(chan struct{})
		hung := map[service.Key]bool{}
		for _, i := range c.hung {
			hung[workSpec(i).Key] = true
		}
		d.Renderer = hangingRenderer{d.Renderer, hung, quit}
		began := time.Now()
		p, stop := run(t, proxy.Config{Domains: []proxy.Domain{d}, GateWait: c.gate, Node: limited, Source: filled(new(*source.Cache), c.fill)})
		select {
		case <-p.FirstSync():
		case <-time.After(time.Hour):
			t.Error("the first sync is not complete after an hour")
		}
		served, took = len(frontends(t, memoryDomain(kernel).Writer)), time.Since(began)
		close(quit)
		stop()
	})
	return served, took
}

// TestFirstSync_CompleteOnceAllServed: when the first sync is complete, every Service is served except rejected ones
// and those whose actor hangs. The daemon then removes leftover rules of other proxies, so no Service may depend on
// them.
func TestFirstSync_CompleteOnceAllServed(t *testing.T) {
	for name, c := range map[string]struct {
		firstSync
		want   int
		within time.Duration
	}{
		"all is well":                   {firstSync{services: 200}, 200, time.Second},
		"one is rejected":               {firstSync{services: 200, rejected: []int{123}}, 199, 10 * time.Second},
		"ten are rejected, nobody says": {firstSync{services: 200, vague: true, rejected: []int{3, 23, 43, 63, 83, 103, 123, 143, 163, 183}}, 190, time.Minute},
		"a scaffold is adopted":         {firstSync{services: 200, scaffold: true}, 200, time.Second},
		"the second of several transactions meets a full buffer": {
			firstSync{services: 200, transactionBytes: 16 << 10, skip: 1, times: 1}, 200, 10 * time.Second},
		"the node's transaction meets a full buffer": {firstSync{services: 200, times: 3}, 200, 10 * time.Second},
		"two ask for too much":                       {firstSync{services: 200, large: []int{3, 4}}, 198 + 50 + 1, time.Second}, // they want the same addresses
		"two actors hang":                            {firstSync{services: 200, hung: []int{3, 4}, gate: 5 * time.Second}, 198, 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			got, took := c.served(t)
			if got != c.want || took > c.within {
				t.Errorf("the first sync is complete after %v with %d Services served, want %d within %v", took, got, c.want, c.within)
			}
			t.Logf("%d Services served after %v", got, took)
		})
	}
}

// TestFirstSync_FollowedByCorrections: AfterRepair is called once after the first sync. Until then, packets met no
// rules, as before a repair.
func TestFirstSync_FollowedByCorrections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []service.Family
		corrects := proxy.ApplyObserver{AfterRepair: func(family service.Family) { told = append(told, family) }}
		var cache *source.Cache
		_, stop := run(t, proxy.Config{
			ApplyObservers: []proxy.ApplyObserver{corrects}, Domains: []proxy.Domain{memoryDomain(nftmodel.NewKernel())},
			Source: filled(&cache, firstSync{services: 3}.fill),
		})
		time.Sleep(time.Second)
		synctest.Wait()
		if !slices.Equal(told, []service.Family{service.IPv4}) {
			t.Errorf("told of %v, want IPv4 once", told)
		}
		stop()
	})
}
