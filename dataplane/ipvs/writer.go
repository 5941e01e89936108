package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/device"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/ipset"
	"github.com/sluice-proxy/sluice/service"
)

// Writer brings batches of one family into IPVS, sets and the dummy device by
// itself, and rules into iptables by another writer. It implements
// [dataplane.Writer] and [dataplane.Watcher].
//
// The messages of a change depend on that change alone, and nothing is listed on the
// way of a batch, but once a set that outgrows its usual bound. Only virtual servers
// whose state is unsure, or other than thought, are asked for, one by one. What is refused does not keep the rest from being
// written, but what refers to it.
//
// Write and Read belong to one goroutine at a time; Watch may run beside them.
type Writer struct {
	family service.Family
	config Config
	// sets and ranks are by the sets' kernel names.
	sets   map[string]ipset.Spec
	ranks  map[string]int
	device dummyDevice
	// open opens what kernel is, which is nil after an answer was lost on it.
	open   func() (*kernelSockets, error)
	kernel *kernelSockets
	levels levels
	// lodgers are the virtual servers that were written in excluded ranges. They are
	// wanted, so that they are read.
	lodgers map[dataplane.Frontend]bool
}

// Config tunes a Writer.
type Config struct {
	// Rules writes the chains and hooks of table mangle, nat and filter: all changes
	// that are about none of this package's own containers. It must be of the same
	// family, and belongs to the Writer from now on. Required.
	Rules dataplane.Writer
	// Excluded are ranges of virtual servers that are somebody else's. All others of
	// the family are taken for ours, as kube-proxy does: those that nobody wants are
	// removed.
	Excluded []netip.Prefix
	// NearlyFull, when set, is told when a set has reached 80 % of its capacity, at each
	// Read that finds it so, and when it has grown to that. It does not block.
	NearlyFull func(SetLevel)
	// Inside runs a function on a thread in the network namespace to work in.
	// Default: the process's own namespace.
	Inside func(func() error) error
}

var (
	_ dataplane.Writer  = (*Writer)(nil)
	_ dataplane.Watcher = (*Writer)(nil)
)

// families are those of the device's addresses.
var families = service.PerFamily[int]{unix.AF_INET, unix.AF_INET6}

// NewWriter opens a writer for one family. The error matches genl.ErrUnavailable
// when the kernel has no IPVS, and ipset.ErrUnsupported when it has no sets.
func NewWriter(family service.Family, config Config) (*Writer, error) {
	if config.Inside == nil {
		config.Inside = func(f func() error) error { return f() }
	}
	dummy, err := device.OpenFamily(config.Inside, families[family])
	if err != nil {
		return nil, err
	}
	w := newWriter(family, config, dummy, func() (*kernelSockets, error) { return openKernel(config.Inside) })
	if err := w.connect(); err != nil {
		return nil, errors.Join(err, dummy.Close())
	}
	return w, nil
}

func newWriter(family service.Family, config Config, dummy dummyDevice, open func() (*kernelSockets, error)) *Writer {
	if config.NearlyFull == nil {
		config.NearlyFull = func(SetLevel) {}
	}
	return &Writer{
		family: family, config: config, sets: ourSets(family), ranks: ranksOf(family), device: dummy, open: open,
		levels: newLevels(family, config.NearlyFull), lodgers: make(map[dataplane.Frontend]bool),
	}
}

// Close gives the sockets up. What is in the kernel stays.
func (w *Writer) Close() error { return errors.Join(w.disconnect(), w.device.Close()) }

func (w *Writer) connect() (err error) {
	if w.kernel == nil {
		w.kernel, err = w.open()
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

// Write makes one attempt, in the order of plan. The kernel cannot be interrupted;
// the context counts between sends.
func (w *Writer) Write(ctx context.Context, batch *dataplane.Batch) dataplane.Receipt {
	start := time.Now()
	receipt := w.attempt(ctx, batch)
	receipt.Took = time.Since(start)
	return receipt
}

func (w *Writer) attempt(ctx context.Context, batch *dataplane.Batch) dataplane.Receipt {
	if ctx.Err() != nil {
		return untouched(batch, dataplane.Unknown, context.Cause(ctx))
	}
	if err := w.connect(); err != nil {
		return untouched(batch, dataplane.Busy, fmt.Errorf("write %s virtual servers: %w", w.family, err))
	}
	a := newAttempt(w, batch)
	a.carryOut(ctx)
	receipt := a.receipt()
	if a.lost {
		// Answers that come late must not be taken for others.
		_ = w.disconnect() // it is given up because it is of no use
	}
	return receipt
}

// untouched is the receipt of a batch that was not begun: there is what was.
func untouched(batch *dataplane.Batch, outcome dataplane.Outcome, err error) dataplane.Receipt {
	certain := make(map[dataplane.ID]*dataplane.Object)
	for i := range batch.Changes {
		if c := &batch.Changes[i]; !c.Unsure {
			certain[c.ID] = c.Before
		}
	}
	return dataplane.Receipt{Outcome: outcome, Certain: certain, Err: err}
}

// excluded tells whether a virtual server at an address is somebody else's.
func (w *Writer) excluded(addr netip.Addr) bool {
	return slices.ContainsFunc(w.config.Excluded, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// ours tells whether a virtual server is.
func (w *Writer) ours(f dataplane.Frontend) bool {
	return service.FamilyOf(f.Addr) == w.family && (!w.excluded(f.Addr) || w.lodgers[f])
}

// lodge notes whether a virtual server in an excluded range is wanted.
func (w *Writer) lodge(f dataplane.Frontend, wanted bool) {
	switch {
	case !w.excluded(f.Addr):
	case wanted:
		w.lodgers[f] = true
	default:
		delete(w.lodgers, f)
	}
}

// ourSets gives the sets of a family by their kernel names.
func ourSets(family service.Family) map[string]ipset.Spec {
	sets := make(map[string]ipset.Spec)
	for _, s := range Sets(family) {
		sets[s.Name] = s
	}
	return sets
}
