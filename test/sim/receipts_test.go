// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// A crowd of Services meets each kind of receipt: that of a transaction, that of a batch
// divided into several, and that of IPVS, whose requests land one by one and are proven.

// crowd is a node that serves many Services in one family. After each write, every Service is
// looked at.
type crowd struct {
	t    *testing.T
	name string
	// reaches reports whether a packet reaches an endpoint, and writer makes a writer
	// for the next process.
	reaches func(nftmodel.Packet) bool
	writer  func() dataplane.Writer

	mu sync.Mutex
	// rejected are those that the kernel rejects.
	rejected map[service.Key]bool
	// served are the Services that were served after the last write.
	served             map[service.Key]bool
	writes, rejections int
	// worst is the smallest number of served ones after a write.
	worst int

	specs  map[int]*service.Spec
	slices map[int]*service.Slice
	proxy  *proxy.Proxy
	cache  *source.Cache
	stop   context.CancelFunc
	done   chan error
}

// crowdSize is the number of Services.
const crowdSize = 150

func newCrowd(t *testing.T, name string) *crowd {
	s := &crowd{t: t, name: name, rejected: map[service.Key]bool{}, served: map[service.Key]bool{}, worst: crowdSize,
		specs: map[int]*service.Spec{}, slices: map[int]*service.Slice{}}
	switch name {
	case "whole", "divided":
		k, bytes := nftmodel.NewKernel(), 0
		if name == "divided" {
			bytes = 2000
		}
		s.reaches = func(p nftmodel.Packet) bool { return delivers(k.Outcomes(p)) }
		s.writer = func() dataplane.Writer {
			return nftkernel.NewWriter(service.IPv4, nftkernel.WriterConfig{Open: k.Open, TransactionBytes: bytes}).Contract()
		}
	case "proven":
		k := &objectKernel{objects: map[dataplane.ID]dataplane.Object{}}
		s.reaches = k.reaches
		s.writer = func() dataplane.Writer { return dataplane.Writer{Write: k.Write, Read: k.Read, Origin: k} }
	}
	for n := range crowdSize {
		s.specs[n] = &service.Spec{Key: keyOf(n), Created: epoch, Ports: []service.Port{{Name: "p0", Port: 80}}}
		s.specs[n].ClusterIPs[service.IPv4] = clusterIP(service.IPv4, n)
		s.slices[n] = crowdSlice(n, 1)
	}
	return s
}

// crowdSlice is the slice of Service n, with so many endpoints.
func crowdSlice(n, endpoints int) *service.Slice {
	slice := &service.Slice{Service: keyOf(n), Name: sliceName(n, 0), Family: service.IPv4,
		Ports: []service.SlicePort{{Name: "p0", Port: 8080}}}
	for e := range endpoints {
		slice.Endpoints = append(slice.Endpoints, service.SliceEndpoint{
			Addr: remotePod(service.IPv4, 1+n+e), Location: &service.Location{NodeName: otherNode}, Ready: true, Serving: true,
		})
	}
	return slice
}

func delivers(outcomes []nftmodel.Outcome) bool {
	share := 0.0
	for _, o := range outcomes {
		if o.Verdict == nftmodel.Delivered {
			share += o.Probability
		}
	}
	return share > 1-1e-6
}

// open starts a process, which finds the kernel as it is.
func (s *crowd) open(blamed bool) {
	s.t.Helper()
	filled := make(chan *source.Cache, 1)
	config := proxy.Config{
		Node:       proxy.NodeSettings{Name: thisNode},
		KeepMemory: true,
		Domains: []proxy.Domain{{
			Name:     s.name,
			Renderer: rejectedRenderer{nftrender.NewRenderer(service.IPv4, nftrender.Options{MasqueradeBit: 14}), s},
			Writer:   s.judged(s.writer(), blamed),
		}},
		Source: func(ctx context.Context, cache *source.Cache) error {
			for n := range crowdSize {
				cache.SetSlice(s.slices[n])
				cache.SetSpec(s.specs[n])
			}
			cache.Prime()
			filled <- cache
			<-ctx.Done()
			return nil
		},
	}
	var err error
	if s.proxy, err = proxy.New(config); err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop, s.done = stop, make(chan error, 1)
	go func() { s.done <- s.proxy.Run(ctx) }()
	s.cache = <-filled
}

func (s *crowd) close() {
	s.t.Helper()
	s.stop()
	if err := <-s.done; err != nil && !errors.Is(err, context.Canceled) {
		s.t.Error(err)
	}
}

// reject makes the kernel reject Services, and changes them.
func (s *crowd) reject(numbers ...int) {
	s.mu.Lock()
	for _, n := range numbers {
		s.rejected[keyOf(n)] = true
	}
	s.mu.Unlock()
	for _, n := range numbers {
		s.change(n, 2)
	}
}

func (s *crowd) change(n, endpoints int) {
	s.slices[n] = crowdSlice(n, endpoints)
	s.cache.SetSlice(s.slices[n])
}

// await waits until exactly the rejected Services are in quarantine, and all else is applied.
func (s *crowd) await(what string) {
	s.t.Helper()
	const limit = time.Hour
	began := time.Now()
	for {
		time.Sleep(time.Second)
		synctest.Wait()
		status := s.proxy.Status()[0]
		s.mu.Lock()
		want := len(s.rejected)
		s.mu.Unlock()
		if status.Open && len(status.Quarantined) == want && status.Ledger.Pending+status.Ledger.Dirty+status.Failures == 0 {
			break
		}
		if time.Since(began) > limit {
			s.t.Errorf("%s: %d in quarantine after %v, want %d: %+v", what, len(status.Quarantined), limit, want, status.Ledger)
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.t.Logf("%-34s settled within %6v: %3d writes, %3d rejected; served after each write: %d or more of %d",
		what, time.Since(began), s.writes, s.rejections, s.worst, crowdSize)
	s.writes, s.rejections, s.worst = 0, 0, crowdSize
}

// judge looks at every Service after a write. The API has not asked to take any away.
func (s *crowd) judge(receipt dataplane.Receipt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	if receipt.Outcome != dataplane.Landed {
		s.rejections++
	}
	now := 0
	var lost []string
	for n := range crowdSize {
		key := keyOf(n)
		served := s.reaches(nftmodel.Packet{
			Src: netip.AddrPortFrom(localPod(service.IPv4, 97), 40000), Dst: netip.AddrPortFrom(clusterIP(service.IPv4, n), 80),
			In: podInterface, Out: "eth0",
		})
		if s.served[key] && !served {
			lost = append(lost, key.String())
		}
		s.served[key] = served
		if served {
			now++
		}
	}
	if len(lost) > 0 {
		s.t.Errorf("write %d (%v): %d of %d Services are served worse, for example %s", s.writes, receipt.Outcome, len(lost), crowdSize, lost[0])
	}
	s.worst = min(s.worst, now)
}

// judged returns a writer that judges after each write. Without blame it names no suspects.
func (s *crowd) judged(w dataplane.Writer, blamed bool) dataplane.Writer {
	write := func(ctx context.Context, batch *dataplane.Batch) dataplane.Receipt {
		time.Sleep(time.Millisecond)
		receipt := w.Write(ctx, batch)
		if !blamed && !receipt.Proven {
			receipt.Suspects = nil
		}
		s.judge(receipt)
		return receipt
	}
	return dataplane.Writer{Write: write, Read: w.Read, Origin: w.Origin}
}

// rejectedRenderer adds a chain that no kernel takes to rejected Services.
type rejectedRenderer struct {
	dataplane.Renderer
	crowd *crowd
}

// unknownChain begins the name of a chain that both kernels reject.
const unknownChain = "endpoint-unknown"

// Service implements dataplane.Renderer.
func (r rejectedRenderer) Service(ctx context.Context, view *service.View, facts *service.NodeFacts) []dataplane.Object {
	objects := r.Renderer.Service(ctx, view, facts)
	r.crowd.mu.Lock()
	defer r.crowd.mu.Unlock()
	if r.crowd.rejected[view.Key] {
		objects = append(objects, dataplane.Object{
			ID: dataplane.ID{Container: "chain", Name: unknownChain + view.Key.Name}, Kind: dataplane.Owned, Body: unknownRule(),
		})
	}
	return objects
}

// unknownRule is a rule with an expression that no kernel knows.
func unknownRule() string {
	c := rules.Chain{Rules: []rules.Rule{{Exprs: []rules.Expr{&rules.Unknown{Name: "telepathy"}}}}}
	return string(c.Encode())
}

// objectKernel takes each object by itself and proves what it rejects. It is writer and
// kernel in one.
type objectKernel struct {
	objects map[dataplane.ID]dataplane.Object
}

// Write implements Write of dataplane.Writer.
func (k *objectKernel) Write(_ context.Context, batch *dataplane.Batch) dataplane.Receipt {
	r := dataplane.Receipt{Certain: map[dataplane.ID]*dataplane.Object{}}
	for _, c := range batch.Changes {
		if c.After != nil && strings.HasPrefix(c.ID.Name, unknownChain) {
			r.Outcome, r.Proven, r.Err = dataplane.Rejected, true, errors.New("no such thing")
			r.Suspects = append(r.Suspects, c.Owner)
			r.Certain[c.ID] = nil
			continue
		}
		if c.After == nil {
			delete(k.objects, c.ID)
		} else {
			k.objects[c.ID] = *c.After
		}
		r.Certain[c.ID] = c.After
	}
	if r.Outcome == dataplane.Landed {
		r.Certain = nil
	}
	return r
}

// Read implements Read of dataplane.Writer.
func (k *objectKernel) Read(context.Context) ([]dataplane.Object, error) {
	return slices.Collect(maps.Values(k.objects)), nil
}

// Owner implements dataplane.Origin: the kernel keeps no names.
func (k *objectKernel) Owner(*dataplane.Object) (key service.Key, named bool) { return key, false }

// Refs implements dataplane.Origin.
func (k *objectKernel) Refs(*dataplane.Object) []dataplane.ID { return nil }

// reaches reports whether the frontend is there; what belongs to it came with it.
func (k *objectKernel) reaches(p nftmodel.Packet) bool {
	for id := range k.objects {
		if f, ok := (nftrender.Naming{}).Frontend(id); ok && id.Container == "@"+nftrender.SetName("frontends") && f.Addr == p.Dst.Addr() && f.Port == p.Dst.Port() {
			return true
		}
	}
	return false
}

// TestReceipts_NoServiceLosesAnything: when served Services are rejected after a change and the process restarts, no
// write makes any Service worse. The rejected ones keep their last good objects.
func TestReceipts_NoServiceLosesAnything(t *testing.T) {
	for _, kind := range []struct {
		name   string
		blamed bool
	}{{"whole", true}, {"whole", false}, {"divided", true}, {"proven", true}} {
		for _, rejected := range rejectedCounts {
			t.Run(fmt.Sprintf("%s/blamed=%t/rejected=%d", kind.name, kind.blamed, rejected), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { playReceipts(t, kind.name, kind.blamed, rejected) })
			})
		}
	}
}

func playReceipts(t *testing.T, kind string, blamed bool, rejected int) {
	s := newCrowd(t, kind)
	s.open(blamed)
	s.await("the first process")
	var numbers []int
	for i := range rejected {
		numbers = append(numbers, i*crowdSize/rejected)
	}
	s.reject(numbers...)
	s.await("Services are rejected")
	for i := range 2 {
		s.close()
		s.open(blamed)
		s.change(1+i, 3) // a neighbour, rejected if it is one of them
		s.await(fmt.Sprintf("restart %d", 1+i))
	}
	s.close()
	s.slices[2] = crowdSlice(2, 4)
	s.open(blamed)
	s.await("restart after an unseen change")
	s.mu.Lock()
	clear(s.rejected)
	s.mu.Unlock()
	for _, n := range numbers {
		s.change(n, 1)
	}
	s.await("cured")
	s.close()
}
