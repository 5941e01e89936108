// SPDX-License-Identifier: Apache-2.0

// Package kernel writes the objects of package render to one IP family's virtual servers, sets and
// device, and reads them back. It lets removed endpoints keep their connections, and cleans up. It
// passes chains and hooks to a separate writer of rules.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// Writer writes batches of one family to IPVS, sets and the dummy device, and their rules
// through another writer.
//
// The messages of a change depend only on that change. A write does not list the kernel's objects; it reads
// only virtual servers whose state is unsure or not as expected. After a rejection, only objects that refer to
// the rejected one are not written.
//
// A removed real server keeps its connections for a while; see graceful. An alarm deletes it, so Write, Read and the
// alarm take turns. Leaving and Watch may run at the same time.
type Writer struct {
	family service.Family
	config Config
	// sets and ranks are by the sets' kernel names.
	sets   map[string]wire.SetSpec
	ranks  map[string]int
	device dummyDevice
	// open opens kernel, which is nil after an answer was lost.
	open   func() (*kernelSockets, error)
	kernel *kernelSockets
	levels levels
	// wantedAnyway are the virtual servers that Sluice wrote in excluded ranges. Read returns
	// them, too.
	wantedAnyway map[service.Frontend]bool
	// turn contains a token while a goroutine uses any field above or below it, except for fields that never change.
	turn    chan struct{}
	leaving *graceful
	// alarm is set for the next look at leaving, nil if there are no leavers. closed is set by Close.
	alarm  *time.Timer
	closed bool
}

// Config tunes a Writer.
type Config struct {
	// Rules writes the chains and hooks of tables mangle, nat and filter: all objects
	// that are not in a container of package render. It must be of the same family, and
	// belongs to the Writer from then on. Required.
	Rules dataplane.Writer
	// Excluded are ranges whose virtual servers belong to other programs. As with kube-proxy, all
	// other virtual servers of the family count as Sluice's: those of no Service are removed.
	Excluded []netip.Prefix
	// NearlyFull, when set, is called when a set has reached 80 % of its capacity: at each Read
	// that finds it so, and when a write fills it to that level. It must not block.
	NearlyFull func(SetLevel)
	// DrainDeadline is how long removed real servers keep their connections, unless their Service has its own limit:
	// those of TCP, and those of UDP that still serve. 0: not at all.
	DrainDeadline time.Duration
	// Cut, when set, is called when connections may have been cut. Unread, when set, is called when connections cannot
	// be read from the kernel, and not again until a read succeeded. Neither may block.
	Cut    func(Cut)
	Unread func(service.Key, service.Frontend, error)
	// Inside is the network namespace to work in.
	Inside netlink.Inside
}

// Contract returns the functions that the core calls.
func (w *Writer) Contract() dataplane.Writer {
	return dataplane.Writer{Write: w.Write, Read: w.Read, Watch: w.Watch, Leaving: w.Leaving, Foresee: w.Foresee, Close: w.Close}
}

// serverReader reads virtual servers from IPVS; see wire.Servers.
type serverReader interface {
	Service(ctx context.Context, f service.Frontend) (wire.Service, error)
	Destinations(ctx context.Context, f service.Frontend) ([]wire.Destination, error)
	List(ctx context.Context, wanted func(wire.Service) bool) ([]wire.Server, error)
	Close() error
}

// serverWriter changes virtual servers; see wire.ServerWriter.
type serverWriter interface {
	Do(ctx context.Context, requests []wire.Request) []error
	Written() dataplane.Written
	Close() error
}

// setSocket reads and changes sets; see wire.Sets.
type setSocket interface {
	Create(ctx context.Context, specs []wire.SetSpec) []error
	Destroy(ctx context.Context, names []string) []error
	Add(ctx context.Context, changes []wire.EntryChange) []error
	Delete(ctx context.Context, changes []wire.EntryChange) []error
	List(ctx context.Context, wanted func(name string) bool) ([]wire.Set, error)
	Close() error
}

// dummyDevice reads and changes the device; see wire.Device.
type dummyDevice interface {
	Exists() (bool, error)
	Ensure() error
	Delete() error
	Add(ctx context.Context, addresses []netip.Addr) []error
	Remove(ctx context.Context, addresses []netip.Addr) []error
	Addresses(family int) (own, others []netip.Addr, err error)
	Watch(ctx context.Context, changed func()) error
	Close() error
}

// kernelSockets are the connections that the Writer closes after an answer was lost.
type kernelSockets struct {
	servers serverReader
	changes serverWriter
	sets    setSocket
}

func (k *kernelSockets) close() error {
	return errors.Join(k.servers.Close(), k.changes.Close(), k.sets.Close())
}

// openKernel opens the sockets in a network namespace.
func openKernel(inside netlink.Inside) (*kernelSockets, error) {
	var k kernelSockets
	err := inside.Do(func() error {
		servers, err := wire.OpenServers()
		if err != nil {
			return err
		}
		changes, err := wire.OpenServerWriter()
		if err != nil {
			return errors.Join(err, servers.Close())
		}
		sets, err := wire.OpenSets()
		if err != nil {
			return errors.Join(err, servers.Close(), changes.Close())
		}
		k = kernelSockets{servers, changes, sets}
		return nil
	})
	return &k, err
}

// families are the address families, for the addresses of the device.
var families = service.PerFamily[int]{unix.AF_INET, unix.AF_INET6}

// NewWriter opens a writer for one family. The error matches wire.ErrUnavailable if the
// kernel has no IPVS, and wire.ErrUnsupported if it has no sets.
func NewWriter(family service.Family, config Config) (*Writer, error) {
	device, err := wire.OpenDevice(config.Inside, families[family])
	if err != nil {
		return nil, err
	}
	open := func() (*kernelSockets, error) { return openKernel(config.Inside) }
	w := newWriter(family, config, device, open)
	if err := w.connect(); err != nil {
		return nil, errors.Join(err, device.Close())
	}
	return w, nil
}

func newWriter(
	family service.Family, config Config, device dummyDevice, open func() (*kernelSockets, error),
) *Writer {
	if config.NearlyFull == nil {
		config.NearlyFull = func(SetLevel) {}
	}
	if config.Cut == nil {
		config.Cut = func(Cut) {}
	}
	if config.Unread == nil {
		config.Unread = func(service.Key, service.Frontend, error) {}
	}
	w := &Writer{
		family: family, config: config, device: device, open: open,
		sets: make(map[string]wire.SetSpec), ranks: ranksOf(family),
		levels: newLevels(family, config.NearlyFull), wantedAnyway: make(map[service.Frontend]bool),
		turn: make(chan struct{}, 1), leaving: newGraceful(&config),
	}
	for _, s := range render.Sets(family) {
		w.sets[s.Name] = s
	}
	return w
}

// Close closes the sockets. It changes nothing in the kernel.
func (w *Writer) Close() error {
	w.turn <- struct{}{}
	defer w.give()
	w.closed = true
	return errors.Join(w.disconnect(), w.device.Close())
}

func (w *Writer) connect() (err error) {
	if w.kernel == nil {
		var opened *kernelSockets
		if opened, err = w.open(); err == nil {
			w.kernel = opened
		}
	}
	return err
}

func (w *Writer) disconnect() error {
	if w.kernel == nil {
		return nil
	}
	err := w.kernel.close()
	w.kernel = nil
	return err
}

// Write makes one attempt, in the order of plan. The kernel cannot be interrupted; the
// context is checked between sends.
func (w *Writer) Write(ctx context.Context, batch *dataplane.Batch) dataplane.Receipt {
	start := time.Now()
	if err := w.take(ctx); err != nil {
		return dataplane.Receipt{Outcome: dataplane.Unknown, Certain: dataplane.Untouched(batch.Changes), Err: err}
	}
	defer w.give()
	receipt := w.attempt(ctx, batch)
	receipt.Took = time.Since(start)
	return receipt
}

func (w *Writer) attempt(ctx context.Context, batch *dataplane.Batch) dataplane.Receipt {
	if ctx.Err() != nil {
		return dataplane.Receipt{Outcome: dataplane.Unknown, Certain: dataplane.Untouched(batch.Changes), Err: context.Cause(ctx)}
	}
	if err := w.connect(); err != nil {
		err = fmt.Errorf("write %s virtual servers: %w", w.family, err)
		return dataplane.Receipt{Outcome: dataplane.Busy, Certain: dataplane.Untouched(batch.Changes), Err: err}
	}
	a := newAttempt(w, batch)
	a.carryOut(ctx)
	receipt := a.receipt()
	if a.lost {
		// On the same connection, a late answer would be taken for that of a later request.
		_ = w.disconnect() // the next write connects again
	}
	return receipt
}

// excluded reports whether virtual servers at an address belong to other programs.
func (w *Writer) excluded(addr netip.Addr) bool {
	return slices.ContainsFunc(w.config.Excluded, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// ours reports whether a virtual server is Sluice's.
func (w *Writer) ours(f service.Frontend) bool {
	return service.FamilyOf(f.Addr) == w.family && (!w.excluded(f.Addr) || w.wantedAnyway[f])
}

// noteWanted notes whether a virtual server in an excluded range is desired.
func (w *Writer) noteWanted(f service.Frontend, wanted bool) {
	switch {
	case !w.excluded(f.Addr):
	case wanted:
		w.wantedAnyway[f] = true
	default:
		delete(w.wantedAnyway, f)
	}
}
