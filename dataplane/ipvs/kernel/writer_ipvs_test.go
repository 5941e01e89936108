// SPDX-License-Identifier: Apache-2.0

//go:build ipvs

package kernel

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	iptrender "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/rendertest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// newKernelStand is one on Linux, in a namespace of its own, with the real writer of
// rules.
func newKernelStand(t *testing.T, family service.Family, config Config) (*stand, *netns.Namespace) {
	t.Helper()
	namespace := netnstest.New(t, "node")
	t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "lock"))
	variant := service.PerFamily[iptkernel.Variant]{iptkernel.Legacy, iptkernel.NFT}[family]
	tool, err := iptkernel.NewExec(t.Context(), iptkernel.ExecConfig{Family: family, Variant: variant})
	if err != nil {
		t.Fatal(err)
	}
	s := &stand{T: t, World: rendertest.WorldOf(family)}
	s.another = func(config Config) *Writer {
		rules := insideRules{namespace, iptkernel.NewWriter(family, tool, iptkernel.WriterConfig{Ownership: ownership()})}
		config.Inside, config.Rules = namespace.Do, dataplane.Writer{Write: rules.Write, Read: rules.Read}
		w, err := NewWriter(family, config)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	s.begin(config)
	if s.kernel, err = openKernel(namespace.Do); err != nil {
		t.Fatal(err)
	}
	d, err := wire.OpenDevice(namespace.Do, unix.AF_UNSPEC)
	if err != nil {
		t.Fatal(err)
	}
	s.device = d
	t.Cleanup(func() {
		if err := errors.Join(s.kernel.close(), d.Close()); err != nil {
			t.Error(err)
		}
	})
	return s, namespace
}

// ownership is what this mode has in iptkernel.
func ownership() iptkernel.Ownership {
	of := iptkernel.Ownership{Owns: func(table iptrender.Table, chain string) bool { return render.OwnsChain(string(table), chain) }}
	for _, h := range render.HookRows() {
		of.Hooks = append(of.Hooks, iptrender.Hook{
			Row: h.Row, Table: iptrender.Table(h.Table), Chain: h.Chain, Target: h.Target,
			Rule: []string{"-m", "comment", "--comment", h.Comment, "-j", h.Target},
		})
	}
	return of
}

// insideRules is a writer whose children must run in a namespace.
type insideRules struct {
	namespace *netns.Namespace
	w         *iptkernel.Writer
}

func (r insideRules) Write(ctx context.Context, batch *dataplane.Batch) (receipt dataplane.Receipt) {
	err := r.namespace.Do(func() error {
		receipt = r.w.Write(ctx, batch)
		return nil
	})
	if err != nil {
		return dataplane.Receipt{Outcome: dataplane.Busy, Err: err}
	}
	return receipt
}

func (r insideRules) Read(ctx context.Context) (objects []dataplane.Object, err error) {
	return objects, errors.Join(r.namespace.Do(func() (err error) {
		objects, err = r.w.Read(ctx)
		return err
	}))
}

func TestKernelWriter(t *testing.T) {
	for _, family := range service.Families {
		for _, c := range writerCases {
			t.Run(family.String()+"/"+c.name, func(t *testing.T) {
				s, _ := newKernelStand(t, family, c.config)
				c.run(s)
			})
		}
	}
}

// TestKernelWatch_TellsStrangersFromWriters: the watch of each writer reports foreign changes to addresses of its
// family, and no changes of either writer.
func TestKernelWatch_TellsStrangersFromWriters(t *testing.T) {
	s, namespace := newKernelStand(t, service.IPv6, Config{})
	s.want(s.scaffold())
	ctx, cancel := context.WithCancel(t.Context())
	var told atomic.Int32
	ended := make(chan error, 1)
	go func() { ended <- s.w.Watch(ctx, func(dataplane.ForeignProcess) { told.Add(1) }) }()
	const settled = 300 * time.Millisecond
	time.Sleep(settled)
	other, err := wire.OpenDevice(namespace.Do, families[service.IPv4])
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	}()
	s.want(s.scaffold(), s.serviceOf("a", s.clusterIP(1, 1)))
	four := []netip.Addr{netip.MustParseAddr("10.0.0.1")}
	if err := errors.Join(append(other.Add(t.Context(), four), other.Remove(t.Context(), four)...)...); err != nil {
		t.Fatal(err)
	}
	time.Sleep(settled)
	if n := told.Load(); n != 0 {
		t.Errorf("reported %d times what other writers did", n)
	}
	if err := errors.Join(s.device.Remove(t.Context(), []netip.Addr{s.clusterIP(1, 1).ClusterIP})...); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "told that an address has gone", func() bool { return told.Load() > 0 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// listings counts what lists more than it is asked for by name.
type listings struct{ servers, sets, addresses int }

// count lets a writer's listings be counted from now on.
func (l *listings) count(w *Writer) {
	w.kernel = &kernelSockets{countedServers{w.kernel.servers, l}, w.kernel.changes, countedSets{w.kernel.sets, l}}
	w.device = countedDevice{w.device, l}
}

type countedServers struct {
	serverReader
	*listings
}

func (c countedServers) List(ctx context.Context, wanted func(wire.Service) bool) ([]wire.Server, error) {
	c.servers++
	return c.serverReader.List(ctx, wanted)
}

type countedSets struct {
	setSocket
	*listings
}

func (c countedSets) List(ctx context.Context, wanted func(name string) bool) ([]wire.Set, error) {
	c.sets++
	return c.setSocket.List(ctx, wanted)
}

type countedDevice struct {
	dummyDevice
	*listings
}

func (c countedDevice) Addresses(family int) (own, others []netip.Addr, err error) {
	c.addresses++
	return c.dummyDevice.Addresses(family)
}

// many is the node with so many Services of so many endpoints each.
func (s *stand) many(count, endpoints int) []owned {
	all := []owned{s.scaffold()}
	for i := range count {
		all = append(all, s.serviceOf("s", s.clusterIP(i+1, endpoints)))
		all[i+1].owner.Name += all[i+1].objects[0].ID.Name
	}
	return all
}

// TestKernelWriter_WorkPerChange: the work for a cold start grows linearly with the number of Services, and the work
// for one leaving endpoint does not. The existing objects are listed once, before the first write.
func TestKernelWriter_WorkPerChange(t *testing.T) {
	const endpoints = 10
	// A Service is a virtual server, its real ones, an address and at most two entries.
	const perService, scaffold = 1 + endpoints + 1 + 2, 200
	// A send holds 256 requests at least.
	const perCall, fewCalls = 256, 40
	var changes []dataplane.Written
	for _, services := range []int{100, 10_000} {
		s, _ := newKernelStand(t, service.IPv4, Config{})
		var listed listings
		s.read()
		listed.count(s.w)
		all := s.many(services, endpoints)
		receipt := s.write(s.changes(all...))
		if receipt.Outcome != dataplane.Landed {
			t.Fatal(receipt)
		}
		t.Logf("%d Services: cold start in %v, %+v", services, receipt.Took, receipt.Written)
		if lines := receipt.Written.Lines; lines < services*(1+endpoints+1) || lines > services*perService+scaffold {
			t.Errorf("%d Services take %d lines, want %d to %d", services, lines, services*(1+endpoints+1), services*perService+scaffold)
		}
		if calls := receipt.Written.Calls; calls > receipt.Written.Lines/perCall+fewCalls {
			t.Errorf("%d Services take %d calls for %d lines", services, calls, receipt.Written.Lines)
		}
		all[1] = owned{all[1].owner, s.serviceOf("s", s.clusterIP(1, endpoints-1)).objects}
		receipt = s.write(s.changes(all...))
		changes = append(changes, receipt.Written)
		t.Logf("%d Services: one endpoint less: the write took %v, %+v", services, receipt.Took, receipt.Written)
		if listed != (listings{}) {
			t.Errorf("listed again after the first time: %+v", listed)
		}
		start := time.Now()
		s.expect(all...)
		t.Logf("%d Services: read and compared in %v", services, time.Since(start))
		if listed != (listings{1, 1, 1}) {
			t.Errorf("a read is not counted: %+v", listed)
		}
	}
	if changes[0] != changes[1] || changes[0].Calls != 1 || changes[0].Lines != 1 {
		t.Errorf("a change takes %+v beside 100 Services, and %+v beside 10,000", changes[0], changes[1])
	}
}
