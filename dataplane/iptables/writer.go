package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Writer brings batches into one family's tables through one [Tool]: all chains
// of a batch in one iptables-restore input (new ones of a very large batch in
// inputs before it, see StageLimits), hooks around it: those that are certain to be
// absent in one input, others one by one. It
// implements [dataplane.Writer] and [dataplane.Watcher].
//
// The bytes it hands over for a change depend on that change alone, never on
// what else is in the kernel. Its methods may be called concurrently; they take
// turns with the tool.
type Writer struct {
	family service.Family
	tool   Tool
	config WriterConfig
	// turn holds one token while the tool is in use.
	turn chan struct{}
	// loose holds the shared chains that were last wanted with no rules of
	// ours; see asWanted. It belongs to whoever has the turn.
	loose map[dataplane.ID]bool
	// authors is set where the kernel announces changes, otherwise sizes where it
	// tells how large tables are; see Watch.
	authors *authors
	sizes   *sizes
	// afterWrite is called when a stranger has changed something during a write;
	// nil while nobody watches.
	afterWrite atomic.Pointer[func(dataplane.Stranger)]
	// strays are hooks that nobody wants, by the chains that they lead to, as last
	// read; see straysIn. It belongs to whoever has the turn, too.
	strays map[dataplane.ID][]hookEdit
}

// WriterConfig tunes a Writer; the zero value is the default.
type WriterConfig struct {
	// WatchInterval is the time from the end of one look at the canaries to
	// the start of the next, for tools that can tell nothing better. Default 5 s.
	WatchInterval time.Duration
	// Stages bound the inputs of a large batch. Default: one input.
	Stages StageLimits
	// Territory is what the writer reads, beside what it is told to write. Default:
	// that of mode iptables.
	Territory Territory
}

const watchIntervalDefault = 5 * time.Second

// NewWriter makes a writer for one family. The tool belongs to it from now on.
func NewWriter(family service.Family, tool Tool, config WriterConfig) *Writer {
	if config.WatchInterval <= 0 {
		config.WatchInterval = watchIntervalDefault
	}
	if config.Territory.Owns == nil {
		config.Territory = OwnTerritory()
	}
	w := &Writer{
		family: family,
		tool:   tool,
		config: config,
		turn:   make(chan struct{}, 1),
		loose:  make(map[dataplane.ID]bool),
	}
	if a, ok := tool.(announcer); ok && a.Announced() {
		w.authors = newAuthors()
		a.OnStart(w.authors.started)
	} else if s, ok := tool.(tableSizer); ok {
		w.sizes = newSizes(s)
	}
	return w
}

// Write makes one attempt: chains that come or change, hooks that come, hooks that
// go, chains that go. A hook must not lead to a chain that is not there, and a chain
// cannot go while a hook leads to it.
//
// Invariant: packets are led to all Services by the old hooks until they are by the
// new ones. Chains that go without a hook go in the input that no longer leads to them.
//
// When a step fails, the tables of the batch are read back, and the receipt
// says of each object what the kernel holds. When that fails too, the outcome
// is unknown for all of them.
func (w *Writer) Write(ctx context.Context, batch *dataplane.Batch) dataplane.Receipt {
	start := time.Now()
	var receipt dataplane.Receipt
	if err := w.acquire(ctx); err != nil {
		receipt = dataplane.Receipt{Outcome: dataplane.Unknown, Err: err}
	} else {
		receipt = w.watched(batch, func() dataplane.Receipt { return w.attempt(ctx, batch) })
		w.release()
	}
	receipt.Took = time.Since(start)
	return receipt
}

// watched lets an attempt be told from what strangers do at the same time.
func (w *Writer) watched(batch *dataplane.Batch, attempt func() dataplane.Receipt) dataplane.Receipt {
	switch {
	case w.authors != nil:
		w.authors.begin()
		receipt := attempt()
		strangers := w.authors.end(time.Now())
		if changed := w.afterWrite.Load(); changed != nil {
			for _, by := range strangers {
				(*changed)(by)
			}
		}
		return receipt
	case w.sizes != nil:
		w.sizes.look()
		receipt := attempt()
		w.sizes.wrote(batch, &receipt)
		return receipt
	default:
		return attempt()
	}
}

func (w *Writer) attempt(ctx context.Context, batch *dataplane.Batch) dataplane.Receipt {
	p, err := newPlan(batch, w.config.Stages, w.strays)
	if err != nil {
		return dataplane.Receipt{Outcome: dataplane.Rejected, Err: err}
	}
	w.noteShared(batch)
	var receipt dataplane.Receipt
	if err = p.carryOut(ctx, w.tool, &receipt); err != nil {
		w.account(ctx, p, err, &receipt)
	}
	return receipt
}

// account turns a failure into a receipt: its kind, and what is in the kernel
// now.
func (w *Writer) account(ctx context.Context, p *plan, failure error, receipt *dataplane.Receipt) {
	receipt.Outcome = dataplane.Unknown
	if toolErr, ok := errors.AsType[*ToolError](failure); ok {
		receipt.Outcome = toolErr.Outcome
	}
	receipt.Err = fmt.Errorf("write %s rules: %w", w.family, failure)
	certain, err := p.readBack(ctx, w.tool, receipt)
	if err != nil {
		receipt.Outcome = dataplane.Unknown
		receipt.Err = errors.Join(receipt.Err, fmt.Errorf("read back what landed: %w", err))
	}
	receipt.Certain = certain
}

// Read gives all chains that are ours, wanted or not, those shared with the
// kubelet and the hooks, sorted by ID. Counters are no part of an object.
func (w *Writer) Read(ctx context.Context) ([]dataplane.Object, error) {
	if err := w.acquire(ctx); err != nil {
		return nil, err
	}
	defer w.release()
	if w.sizes == nil {
		return w.read(ctx)
	}
	before := w.sizes.measure()
	objects, err := w.read(ctx)
	if err == nil {
		w.sizes.read(before)
	}
	return objects, err
}

func (w *Writer) read(ctx context.Context) ([]dataplane.Object, error) {
	var objects []dataplane.Object
	strays := make(map[dataplane.ID][]hookEdit)
	for _, table := range [...]Table{Mangle, Filter, NAT} {
		s, err := readTable(ctx, w.tool, table)
		if err != nil {
			return nil, fmt.Errorf("read %s rules: %w", w.family, err)
		}
		for _, chain := range s.chains {
			if w.config.Territory.Owns(table, chain) || isShared(table, chain) {
				objects = append(objects, *w.asWanted(s.object(chain)))
			}
		}
		for _, hook := range w.config.Territory.hooksIn(s) {
			objects = append(objects, hook.Object())
		}
		w.config.Territory.straysIn(s, strays)
	}
	w.strays = strays
	slices.SortFunc(objects, func(a, b dataplane.Object) int { return a.ID.Compare(b.ID) })
	return objects, nil
}

// readTable saves and parses one table.
func readTable(ctx context.Context, tool Tool, table Table) (*saved, error) {
	printed, err := tool.Save(ctx, table)
	if err != nil {
		return nil, err
	}
	return parseSave(table, printed)
}

// acquire waits for the tool.
func (w *Writer) acquire(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case w.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *Writer) release() { <-w.turn }
