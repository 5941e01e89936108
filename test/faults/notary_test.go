package faults

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/service"
)

// notary is a writer that compares each receipt with the kernel: after a write
// that did not land, what the receipt calls certain must be so. And after each write,
// whoever was served before it must be so still.
type notary struct {
	*nftables.Writer
	// reader is a second connection to the same table.
	reader *nftables.Writer
	// meddling counts what strangers have done; a receipt from a time during
	// which it has changed is not compared.
	meddling *atomic.Int64
	// afterRead, when set, is called when the kernel has been read, and nobody
	// has been told yet.
	afterRead func()
	// before is called before each write, and gives it its context.
	before func(context.Context) context.Context
	// promises gives what Services may count on, strangers how often somebody else has
	// begun or ended something.
	promises  func() map[service.Key][]dataplane.Object
	strangers func() int64

	mu       sync.Mutex
	errs     []error
	compared map[dataplane.Outcome]int
	// writes counts all, and of each so many one is watched.
	writes, each int
	// watched counts the Services that were compared before and after a write.
	watched int
	// last is the batch that was written last.
	last *dataplane.Batch
}

// Write is for dataplane.Writer.
func (n *notary) Write(ctx context.Context, batch *dataplane.Batch) dataplane.Receipt {
	var found before
	if n.writes++; n.writes%n.each == 0 {
		found = n.find(ctx)
	}
	calm := n.meddling.Load()
	receipt := n.Writer.Write(n.before(ctx), batch)
	harm, watched := n.harm(ctx, found, receipt)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.errs, n.watched = append(n.errs, harm...), n.watched+watched
	n.last = batch
	if receipt.Outcome == dataplane.Landed {
		return receipt
	}
	objects, err := readWhole(ctx, n.reader)
	if err != nil {
		n.errs = append(n.errs, err)
	} else if n.meddling.Load() == calm {
		n.compared[receipt.Outcome]++
		n.errs = append(n.errs, uncertain(batch, receipt, objects)...)
	}
	return receipt
}

// onceRead calls a function when the kernel has been read the next time, before
// anybody is told.
func (n *notary) onceRead(then func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.afterRead = then
}

// Read is for dataplane.Writer.
func (n *notary) Read(ctx context.Context) ([]dataplane.Object, error) {
	objects, err := n.Writer.Read(ctx)
	n.mu.Lock()
	after := n.afterRead
	n.afterRead = nil
	n.mu.Unlock()
	if after != nil {
		after()
	}
	return objects, err
}

// uncertain gives what a receipt is wrong about.
func uncertain(batch *dataplane.Batch, receipt dataplane.Receipt, objects []dataplane.Object) []error {
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
			errs = append(errs, fmt.Errorf("%v: %s %x is said to be %t and is %t there",
				receipt, id.Container, id.Name, said != nil, there[id] != nil))
		case !certain && receipt.Outcome == dataplane.Rejected:
			errs = append(errs, fmt.Errorf("%v: says nothing of %s %x", receipt, id.Container, id.Name))
		}
	}
	return errs
}

// objections gives what was wrong so far, and how many receipts were compared.
func (n *notary) objections() ([]error, map[dataplane.Outcome]int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.errs, n.compared
}

// missing gives something that the last batch wanted and that a picture lacks.
func (n *notary) missing(in picture) (dataplane.ID, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	wanted := picture{}
	for _, c := range n.last.Changes {
		if c.After != nil {
			wanted[c.ID] = c.After.Body
		}
	}
	return wanted.missing(in)
}
