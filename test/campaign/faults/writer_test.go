// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/service"
)

// checkingWriter compares each write with the kernel. After a write that did not land, what the
// receipt calls certain must be so. And no write may serve a Service worse than before, unless the
// API asked for it: of a Service that the kernel held wholly, everything stays as long as its
// rendering does. Of one that the kernel rejects, the last good rendering stays.
type checkingWriter struct {
	*nftkernel.Writer
	// reader is a second connection to the same table.
	reader *nftkernel.Writer
	// foreignWrites counts the writes of other programs. A receipt is not compared if the number
	// has changed during its write.
	foreignWrites *atomic.Int64
	// afterRead, when set, is called once, between a reading of the kernel and its report.
	afterRead func()
	// around carries out each write.
	around func(context.Context, func(context.Context) dataplane.Receipt) dataplane.Receipt
	// expected returns what each Service may count on.
	expected func() map[service.Key][]dataplane.Object
	// foreign counts what other programs and interrupters have begun or ended.
	foreign func() int64

	mu       sync.Mutex
	errs     []error
	compared map[dataplane.Outcome]int
	// writes counts every write. One of each so many is watched.
	writes, each int
	// watched counts the Services that were compared before and after a write.
	watched int
	// last is the batch that was written last.
	last *dataplane.Batch
}

// Contract returns the functions that the core calls.
func (w *checkingWriter) Contract() dataplane.Writer {
	c := w.Writer.Contract()
	c.Write, c.Read = w.Write, w.Read
	return c
}

// Write implements Write of dataplane.Writer.
func (w *checkingWriter) Write(ctx context.Context, batch *dataplane.Batch) dataplane.Receipt {
	ctx, end := withoutDeadline(ctx)
	defer end()
	var found before
	if w.writes++; w.writes%w.each == 0 {
		found = w.find(ctx)
	}
	foreign := w.foreignWrites.Load()
	receipt := w.around(ctx, func(ctx context.Context) dataplane.Receipt { return w.Writer.Write(ctx, batch) })
	errs, watched := w.checkServed(ctx, found, receipt)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errs, w.watched = append(w.errs, errs...), w.watched+watched
	w.last = batch
	if receipt.Outcome == dataplane.Landed {
		return receipt
	}
	objects, err := readWhole(ctx, w.reader)
	if err != nil {
		w.errs = append(w.errs, err)
	} else if w.foreignWrites.Load() == foreign {
		w.compared[receipt.Outcome]++
		w.errs = append(w.errs, wrongIn(batch, receipt, objects)...)
	}
	return receipt
}

// withoutDeadline returns a context that ends when another one is canceled, but not at its deadline. A
// try of a bisection has 5 s. On a busy machine the comparisons alone take longer, and the outcome would
// be unknown. A stopping proxy cancels no write, and that stays visible.
func withoutDeadline(ctx context.Context) (context.Context, func()) {
	free, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	leave := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			cancel(context.Cause(ctx))
		}
	})
	return free, func() { leave(); cancel(nil) }
}

// onceRead calls a function between the next reading of the kernel and its report.
func (w *checkingWriter) onceRead(then func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.afterRead = then
}

// Read implements Read of dataplane.Writer.
func (w *checkingWriter) Read(ctx context.Context) ([]dataplane.Object, error) {
	objects, err := w.Writer.Read(ctx)
	w.mu.Lock()
	after := w.afterRead
	w.afterRead = nil
	w.mu.Unlock()
	if after != nil {
		after()
	}
	return objects, err
}

// wrongIn returns what a receipt is wrong about.
func wrongIn(batch *dataplane.Batch, receipt dataplane.Receipt, objects []dataplane.Object) []error {
	there := make(map[dataplane.ID]*dataplane.Object, len(objects))
	for i := range objects {
		there[objects[i].ID] = &objects[i]
	}
	var errs []error
	for i := range batch.Changes {
		id := batch.Changes[i].ID
		said, certain := receipt.Certain[id]
		switch {
		case certain && !dataplane.Same(said, there[id]):
			errs = append(errs, fmt.Errorf("%v: %s %x: receipt says there %t, kernel %t",
				receipt, id.Container, id.Name, said != nil, there[id] != nil))
		case !certain && receipt.Outcome == dataplane.Rejected:
			errs = append(errs, fmt.Errorf("%v: says nothing of %s %x", receipt, id.Container, id.Name))
		}
	}
	return errs
}

// findings returns what was wrong so far, and how many receipts were compared.
func (w *checkingWriter) findings() ([]error, map[dataplane.Outcome]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.errs, w.compared
}

// missing returns something that the last batch wanted and that a table lacks.
func (w *checkingWriter) missing(in contents) (dataplane.ID, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wanted := contents{}
	for _, c := range w.last.Changes {
		if c.After != nil {
			wanted[c.ID] = c.After.Body
		}
	}
	return wanted.missing(in)
}

// unsettled is how long a Service is not compared after a change. The batch at hand may still be of
// the rendering before.
const unsettled = 200 * time.Millisecond

// expected returns the last good rendering of each Service that is settled.
func (r *spoilingRenderer) expected() map[service.Key][]dataplane.Object {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := maps.Clone(r.good)
	for key, at := range r.changed {
		if time.Since(at) < unsettled {
			delete(all, key)
		}
	}
	return all
}

// noteGood keeps a good rendering. The lock is held.
func (r *spoilingRenderer) noteGood(key service.Key, objects []dataplane.Object) {
	if _, known := r.good[key]; known {
		r.changed[key] = time.Now()
	}
	r.good[key] = objects
}

// before is what a write finds.
type before struct {
	contents contents
	expected map[service.Key][]dataplane.Object
	// foreign is the count of foreign writes, odd during one.
	foreign int64
	// known is false when the kernel could not be read without a foreign write.
	known bool
}

// find looks at the kernel before a write.
func (w *checkingWriter) find(ctx context.Context) (b before) {
	b.foreign = w.foreign()
	b.expected = w.expected()
	b.contents, b.known = contentsNow(ctx, w.reader)
	b.known = b.known && b.foreign%2 == 0
	return b
}

// contentsNow reads once. It returns false when another program writes at the same time.
func contentsNow(ctx context.Context, reader *nftkernel.Writer) (contents, bool) {
	objects, err := reader.Read(context.WithoutCancel(ctx))
	return contentsOf(objects), err == nil
}

// checkServed returns what a write has taken from Services, and how many Services it compared.
func (w *checkingWriter) checkServed(ctx context.Context, b before, receipt dataplane.Receipt) (errs []error, compared int) {
	if !b.known {
		return nil, 0
	}
	now := w.expected()
	after, known := contentsNow(ctx, w.reader)
	if !known || w.foreign() != b.foreign {
		return nil, 0
	}
	for key, objects := range b.expected {
		same := len(objects) > 0 && len(now[key]) > 0 && &objects[0] == &now[key][0]
		expected := contentsOf(objects)
		if _, lacked := expected.missing(b.contents); !same || lacked {
			continue
		}
		compared++
		if id, lost := expected.missing(after); lost {
			errs = append(errs, fmt.Errorf("%v was served before a write (%v), which removed its %s %x", key, receipt, id.Container, id.Name))
		}
	}
	return errs, compared
}

// contents are the bodies of a table's objects.
type contents map[dataplane.ID]string

func contentsOf(objects []dataplane.Object) contents {
	c := make(contents, len(objects))
	for _, o := range objects {
		c[o.ID] = o.Body
	}
	return c
}

// missing returns an object that another table lacks or has differently.
func (c contents) missing(in contents) (dataplane.ID, bool) {
	for id, body := range c {
		if there, ok := in[id]; !ok || there != body {
			return id, true
		}
	}
	return dataplane.ID{}, false
}

// domain is one family's part of a proxyNode.
type domain struct {
	name     string
	renderer *spoilingRenderer
	writer   *checkingWriter
	sockets  *socketGate
}

func (p *proxyNode) newDomain(family service.Family) *domain {
	p.Helper()
	inside := p.network.node.Do
	check(p, nftkernel.Probe(family, inside))
	striking := func() *interrupter {
		if i := p.interrupter.Load(); i != nil && i.family == family {
			return i
		}
		return nil
	}
	sockets := &socketGate{}
	writer := nftkernel.NewWriter(family, nftkernel.WriterConfig{
		Inside: inside, Open: sockets.open,
		TransactionBytes: p.transactionBytes, Progress: func(landed, all int) {
			if i := striking(); i != nil {
				i.landed(landed, all)
			}
		},
	})
	renderer := newSpoilingRenderer(nftrender.NewRenderer(family, nftrender.Options{MasqueradeBit: 14}))
	if p.process != nil {
		renderer.external = p.domains[slices.Index(service.Families[:], family)].renderer.external
	}
	for key, v := range p.spoiled[family] {
		renderer.set(key, func(objects []dataplane.Object) []dataplane.Object { return v.spoil(renderer, family, objects) })
	}
	return &domain{
		name: "nftables/" + family.String(), sockets: sockets, renderer: renderer,
		writer: &checkingWriter{
			Writer: writer, reader: nftkernel.NewWriter(family, nftkernel.WriterConfig{Inside: inside}),
			foreignWrites: &p.foreignWrites, compared: map[dataplane.Outcome]int{}, expected: renderer.expected, each: max(1, p.watchEach),
			foreign: func() int64 { return p.foreignWrites.Load() + p.strikes.Load() },
			around: func(ctx context.Context, write func(context.Context) dataplane.Receipt) dataplane.Receipt {
				if i := p.interrupter.Load(); i != nil {
					return i.write(ctx, family, write)
				}
				return write(ctx)
			},
		},
	}
}

// end fails for every receipt that was wrong.
func (d *domain) end(t *testing.T) {
	t.Helper()
	errs, compared := d.writer.findings()
	for _, err := range errs {
		t.Errorf("%s: a write and the kernel: %v", d.name, err)
	}
	d.writer.mu.Lock()
	watched := d.writer.watched
	d.writer.mu.Unlock()
	t.Logf("%s: Services compared before and after writes: %d", d.name, watched)
	if len(compared) > 0 {
		t.Logf("%s: receipts compared with the kernel: %v", d.name, compared)
	}
	d.close(t)
}

func (d *domain) close(t *testing.T) {
	t.Helper()
	check(t, d.writer.Close())
	check(t, d.writer.reader.Close())
}
