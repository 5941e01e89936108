// SPDX-License-Identifier: Apache-2.0

package writertest

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/service"
)

// Pipeline is the proxy's path from API values to the kernel without its goroutines: resolve,
// render, account, plan, write, settle. It does not trust the writer: each write is checked against
// what is read back.
type Pipeline struct {
	renderer dataplane.Renderer
	writer   dataplane.Writer
	ledger   *ledger.Ledger
	facts    service.NodeFacts
	sequence uint64
	// beforeWrite is called before the kernel changes.
	beforeWrite func()
}

// NewPipeline starts with an empty ledger, as a process does.
func NewPipeline(h Harness, writer dataplane.Writer, facts service.NodeFacts) *Pipeline {
	var layout dataplane.Layout
	if h.NewLayout != nil {
		layout = h.NewLayout()
	}
	p := &Pipeline{
		renderer: h.Renderer, writer: writer, ledger: ledger.New(layout, h.Renderer.Naming(), nil), facts: facts,
		beforeWrite: func() {},
	}
	p.want(service.Node, p.renderer.Node(&p.facts), false)
	return p
}

// SetFacts renders the scaffold again. Services keep the facts with which they were rendered.
func (p *Pipeline) SetFacts(facts service.NodeFacts) {
	p.facts = facts
	p.want(service.Node, p.renderer.Node(&p.facts), false)
}

// Serve wants a Service as it is now.
func (p *Pipeline) Serve(spec service.Spec, slices ...*service.Slice) {
	view := service.Resolve(spec.Key, &spec, slices, &p.facts)
	p.want(spec.Key, p.renderer.Service(context.Background(), &view, &p.facts), false)
}

// Forget wants a Service to be gone.
func (p *Pipeline) Forget(key service.Key) { p.want(key, nil, true) }

func (p *Pipeline) want(key service.Key, objects []dataplane.Object, gone bool) {
	p.sequence++
	fragment := dataplane.NewFragment(key, objects)
	fragment.Revision = service.Revision{Incarnation: 1, Sequence: p.sequence}
	fragment.Gone = gone
	p.ledger.Want(fragment)
}

// Plan returns the next batch; nil when there is nothing to write or settle.
func (p *Pipeline) Plan() *dataplane.Batch { return p.ledger.Plan() }

// Write makes one attempt to write a batch, and checks that the receipt is true.
func (p *Pipeline) Write(ctx context.Context, t *testing.T, batch *dataplane.Batch) dataplane.Receipt {
	t.Helper()
	p.beforeWrite()
	receipt := p.writer.Write(ctx, batch)
	p.checkReceipt(t, batch, receipt)
	p.ledger.Settle(batch, receipt)
	return receipt
}

// Converge writes what is wanted, which has to land immediately.
func (p *Pipeline) Converge(t *testing.T) dataplane.Receipt {
	t.Helper()
	batch := p.Plan()
	if batch == nil {
		return dataplane.Receipt{}
	}
	receipt := p.Write(t.Context(), t, batch)
	if receipt.Outcome != dataplane.Landed {
		t.Fatalf("write: %v", receipt)
	}
	if next := p.Plan(); next != nil {
		t.Fatalf("after everything has landed, %d changes are planned: %s", len(next.Changes), names(next.Changes))
	}
	return receipt
}

// Audit reads the kernel back and compares it with what is wanted.
func (p *Pipeline) Audit(t *testing.T) ledger.Drift {
	t.Helper()
	return p.ledger.Observe(p.read(t))
}

func (p *Pipeline) read(t *testing.T) []dataplane.Object {
	t.Helper()
	objects, err := p.writer.Read(t.Context())
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return objects
}

// checkReceipt compares a receipt with the kernel: what landed must be there, and so must what the
// receipt calls certain.
func (p *Pipeline) checkReceipt(t *testing.T, batch *dataplane.Batch, receipt dataplane.Receipt) {
	t.Helper()
	there := byID(p.read(t))
	for i := range batch.Changes {
		change := &batch.Changes[i]
		want, certain := receipt.Certain[change.ID]
		if receipt.Outcome == dataplane.Landed {
			want, certain = change.After, true
		}
		if !certain || dataplane.Same(there[change.ID], want) {
			continue
		}
		t.Errorf("receipt %v\nsays of %v\n%s\nbut the kernel has\n%s", receipt, change.ID, body(want), body(there[change.ID]))
	}
}

// Attempt writes changes, and checks that the receipt says of each object truly whether it is there.
func Attempt(t testing.TB, w dataplane.Writer, changes ...dataplane.Change) dataplane.Receipt {
	t.Helper()
	receipt := w.Write(t.Context(), &dataplane.Batch{Changes: changes})
	objects, err := w.Read(t.Context())
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	there := byID(objects)
	for _, c := range changes {
		said, certain := receipt.Certain[c.ID]
		if receipt.Outcome == dataplane.Landed {
			said, certain = c.After, true
		}
		if !certain || !dataplane.Same(said, there[c.ID]) {
			t.Errorf("%v: receipt %v says %v (certain: %v), there is %v", c.ID, receipt, said, certain, there[c.ID])
		}
	}
	return receipt
}

func byID(objects []dataplane.Object) map[dataplane.ID]*dataplane.Object {
	found := make(map[dataplane.ID]*dataplane.Object, len(objects))
	for i := range objects {
		found[objects[i].ID] = &objects[i]
	}
	return found
}

func body(o *dataplane.Object) string {
	if o == nil {
		return "(absent)"
	}
	return o.Body
}

// names lists the objects that changes are about.
func names(changes []dataplane.Change) string {
	var listed []string
	for i := range changes {
		listed = append(listed, changes[i].ID.Container+" "+changes[i].ID.Name)
	}
	slices.Sort(listed)
	return strings.Join(listed, ", ")
}
