// SPDX-License-Identifier: Apache-2.0

// Package kernel writes the objects of package render with iptables-restore, in the legacy or the nft
// variant of the tools, and reads them back. It owns the chains and hooks of an [Ownership] in one family's
// tables. internal/daemon/backend builds one domain per family from it; IPVS mode uses its [Writer] for the
// few rules that it needs.
//
//	writer.go       Write and Read
//	turn.go         which part of a large Service a batch changes
//	plan.go         the steps of one batch, and how a large one is divided
//	input.go        the text for iptables-restore
//	read.go         the output of iptables-save; unprintable.go: tables that it cannot print
//	ownership.go    the chains and hooks that a mode owns
//	cleanup.go      removes Sluice's chains, hooks and rules
//	traffic.go      reads counters; counter.go: the counter of one rule; counted.go: totals. Counts of a rule
//	                between the last reading and its deletion are lost.
//	watch.go        changes by other programs; watch_sizes.go: in legacy tables
//	tool.go         the interface of the programs, failures, the lock
//	exec.go         runs the programs; programs.go finds them; detect.go chooses the variant
package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/dataplane/iptables/rules"
	"github.com/sluice-proxy/sluice/service"
)

// Writer writes batches into one family's tables through one [Tool]. All chains of a batch go in
// one iptables-restore input; new ones of a very large batch go in inputs before it (see
// StageLimits). Hooks that certainly do not exist yet go in one input, others one by one.
//
// The bytes that it writes for a change depend on that change alone, never on what else is in
// the kernel. Its methods may be called concurrently; they take turns with the tool.
type Writer struct {
	family service.Family
	tool   Tool
	config WriterConfig
	// turn holds one token while the tool is in use.
	turn chan struct{}
	// turns divides what is planned. Only Cut uses it.
	turns turns
	// sharedEmpty has the shared chains in which the last write wanted no rules; see asWanted.
	// It belongs to the holder of the turn.
	sharedEmpty map[dataplane.ID]bool
	// ownWrites is set if the kernel announces changes, sizes if it only reports the sizes of
	// tables; see Watch.
	ownWrites *ownWrites
	sizes     *sizes
	// reading holds one token during a reading of the counters, which counted adds up.
	reading chan struct{}
	counted *counted
	// afterWrite is called if another program changed something during a write. It is nil unless
	// Watch runs.
	afterWrite atomic.Pointer[func(dataplane.ForeignProcess)]
	// foreignHooks has the unwanted jumps from built-in chains to owned chains, by the owned chain, as
	// last read; see foreignHooksIn. It belongs to the holder of the turn.
	foreignHooks map[dataplane.ID][]render.Hook
}

// Contract returns the functions that the core calls.
func (w *Writer) Contract() dataplane.Writer {
	return dataplane.Writer{Write: w.Write, Read: w.Read, Cut: w.Cut, Origin: w, Watch: w.Watch, Traffic: w.Traffic}
}

// WriterConfig tunes a Writer. The zero value is the default.
type WriterConfig struct {
	// Stages bound the inputs of a large batch. Default: one input.
	Stages StageLimits
	// TurnSize limits how much of one Service is written before others get a turn, in the unit of
	// dataplane.Change.Size. Default: no limit.
	TurnSize int
	// Ownership selects the chains and hooks that the writer reads. Default: those of iptables mode.
	Ownership Ownership
	// Accounting is set if rules count in accounting objects. The writer creates those that are
	// missing before each write.
	Accounting bool
}

// NewWriter returns a writer for one family. The writer owns the tool from then on.
func NewWriter(family service.Family, tool Tool, config WriterConfig) *Writer {
	if config.Ownership.Owns == nil {
		config.Ownership = DefaultOwnership()
	}
	w := &Writer{
		family:      family,
		tool:        tool,
		config:      config,
		turn:        make(chan struct{}, 1),
		turns:       turns{most: config.TurnSize},
		reading:     make(chan struct{}, 1),
		counted:     newCounted(),
		sharedEmpty: make(map[dataplane.ID]bool),
	}
	if tool.Announced() {
		w.ownWrites = newOwnWrites()
		tool.OnStart(w.ownWrites.started)
	} else {
		w.sizes = newSizes(tool)
	}
	return w
}

// Write makes one attempt. It adds and changes chains, adds hooks, deletes hooks, and deletes
// chains, in this order: a hook must not jump to a missing chain, and the kernel does not delete
// a chain that a hook jumps to.
//
// Invariant: the old hooks send packets to all Services until the new ones do. If no hook is
// deleted, the input that removes the jumps to a chain also deletes the chain.
//
// If a step fails, the writer reads the tables of the batch back, and the receipt contains the
// kernel's state of each object. If that fails too, the outcome is unknown for all of them.
func (w *Writer) Write(ctx context.Context, batch *dataplane.Batch) dataplane.Receipt {
	start := time.Now()
	var receipt dataplane.Receipt
	if err := w.acquire(ctx); err != nil {
		receipt = dataplane.Receipt{Outcome: dataplane.Unknown, Err: err}
	} else {
		w.counted.beginWrite(batch.Changes)
		receipt = w.watched(batch, func() dataplane.Receipt { return w.attempt(ctx, batch) })
		w.counted.endWrite(receipt.Outcome == dataplane.Landed)
		w.release()
	}
	receipt.Took = time.Since(start)
	return receipt
}

// Cut implements Cut of [dataplane.Writer].
func (w *Writer) Cut(changes []dataplane.Change) (now []dataplane.Change) {
	for len(now) == 0 && len(changes) > 0 { // the turn may be of a Service that can only wait
		now = w.turns.choose(changes)
	}
	return now
}

// watched makes an attempt, and detects what other programs change at the same time.
func (w *Writer) watched(batch *dataplane.Batch, attempt func() dataplane.Receipt) dataplane.Receipt {
	if w.sizes != nil {
		w.sizes.look()
		receipt := attempt()
		w.sizes.wrote(batch, &receipt)
		return receipt
	}
	w.ownWrites.begin()
	receipt := attempt()
	strangers := w.ownWrites.end(time.Now())
	if changed := w.afterWrite.Load(); changed != nil {
		for _, by := range strangers {
			(*changed)(by)
		}
	}
	return receipt
}

func (w *Writer) attempt(ctx context.Context, batch *dataplane.Batch) dataplane.Receipt {
	p, err := newPlan(batch, w.config.Stages, w.foreignHooks)
	if err != nil {
		return dataplane.Receipt{Outcome: dataplane.Rejected, Err: err}
	}
	for i := range batch.Changes {
		after := batch.Changes[i].After
		if after != nil && render.IsShared(render.Table(after.ID.Container), after.ID.Name) {
			w.sharedEmpty[after.ID] = render.OnlyExists(after)
		}
	}
	if w.config.Accounting {
		if err := ensureAccounts(); err != nil {
			return dataplane.Receipt{Outcome: dataplane.Busy, Err: err}
		}
	}
	var receipt dataplane.Receipt
	if err = p.carryOut(ctx, w.tool, &receipt); err != nil {
		w.account(ctx, p, err, &receipt)
	}
	return receipt
}

// account turns a failure into a receipt: its outcome, and the state of the kernel now.
func (w *Writer) account(ctx context.Context, p *plan, failure error, receipt *dataplane.Receipt) {
	receipt.Outcome = dataplane.Unknown
	if toolErr, ok := errors.AsType[*ToolError](failure); ok {
		receipt.Outcome = toolErr.Outcome
	}
	receipt.Err = fmt.Errorf("write %s rules: %w", w.family, failure)
	certain, err := p.readBack(ctx, w.tool, w.config.Ownership, receipt)
	if err != nil {
		receipt.Outcome = dataplane.Unknown
		receipt.Err = errors.Join(receipt.Err, fmt.Errorf("read back the applied objects: %w", err))
	}
	receipt.Certain = certain
}

// Read returns all owned chains, wanted or not, the chains that the kubelet shares, and the hooks,
// sorted by ID. Objects contain no counters.
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
	foreignHooks := make(map[dataplane.ID][]render.Hook)
	for _, table := range render.Tables {
		s, err := readTable(ctx, w.tool, table, w.config.Ownership)
		if err != nil {
			return nil, fmt.Errorf("read %s rules: %w", w.family, err)
		}
		for _, chain := range s.chains {
			if w.config.Ownership.Owns(table, chain) || render.IsShared(table, chain) {
				objects = append(objects, *w.asWanted(s.object(chain)))
			}
		}
		for _, hook := range w.config.Ownership.hooksIn(s) {
			objects = append(objects, hook.Object())
		}
		w.config.Ownership.foreignHooksIn(s, foreignHooks)
	}
	w.foreignHooks = foreignHooks
	slices.SortFunc(objects, func(a, b dataplane.Object) int { return a.ID.Compare(b.ID) })
	return objects, nil
}

// asWanted returns a chain that was read, without its rules if it only has to exist. Otherwise each
// audit would find the kubelet's rules and plan a removal that Write then leaves out. Before the first
// batch, the writer does not know whether the chain only has to exist, so the first audit finds them.
func (w *Writer) asWanted(o *dataplane.Object) *dataplane.Object {
	if !w.sharedEmpty[o.ID] {
		return o
	}
	return &dataplane.Object{ID: o.ID, Kind: o.Kind}
}

// Owner returns the Service that the comments of a rule, or of a chain's rules, name: the first
// word of the form "namespace/name", optionally with ":port".
func (w *Writer) Owner(o *dataplane.Object) (service.Key, bool) {
	for line := range strings.SplitSeq(o.Body, "\n") {
		for word := range strings.FieldsSeq(rules.CommentOf(line)) {
			namespace, name, named := strings.Cut(word, "/")
			if name, _, _ = strings.Cut(name, ":"); named && namespace != "" && name != "" {
				return service.Key{Namespace: namespace, Name: name}, true
			}
		}
	}
	return service.Key{}, false
}

// Refs returns the chains that an object jumps to, as Read found them.
func (w *Writer) Refs(o *dataplane.Object) []dataplane.ID { return o.Refs() }

// acquire waits for the turn with the tool.
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
