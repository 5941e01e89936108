package nftables_test

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/service"
)

// halting is a socket for whose n-th transaction from now there is no memory.
type halting struct {
	*wire.Socket
	left *int
}

// Commit is for nftables.Socket.
func (h halting) Commit(t *wire.Transaction) ([]*wire.Refusal, error) {
	if *h.left--; *h.left == 0 {
		return nil, &wire.NotTakenError{Err: unix.ENOBUFS}
	}
	return h.Socket.Commit(t)
}

// TestWhatIsCertainOfAnInterruptedBatch: a batch of several transactions ends
// after some of them, for want of time or of memory; with or without somebody
// else who has changed tables in between. What the receipt calls certain is what
// the kernel holds, and after the next batch all is well.
func TestWhatIsCertainOfAnInterruptedBatch(t *testing.T) {
	const services = 200
	first := "delete element ip kube-proxy frontends { 172.16.0.0 . tcp . 80 }"
	for name, c := range map[string]struct {
		stranger string
		busy     bool
		// nothing says that nothing may be called certain.
		nothing bool
	}{
		"out of time":                             {},
		"busy":                                    {busy: true},
		"out of time, and a stranger's own table": {stranger: "add table inet other", nothing: true},
		"out of time, and an element gone":        {stranger: first, nothing: true},
		"busy, and an element gone":               {stranger: first, busy: true, nothing: true},
		"busy, and the table gone":                {stranger: "delete table ip kube-proxy", busy: true, nothing: true},
	} {
		for direction, endpoints := range map[string][2]int{"added": {0, 4}, "changed": {4, 3}, "removed": {4, 0}} {
			t.Run(name+", "+direction, func(t *testing.T) {
				w := newWorld(t, service.IPv4, nftables.WriterConfig{})
				serve := func(endpoints int) {
					for n := range services {
						if view := plain(n, endpoints, endpoints); endpoints > 0 {
							w.serve(view)
						} else {
							w.want(view.Key, nil)
						}
					}
				}
				w.serve(plain(0, 2, 0))
				serve(endpoints[0])
				w.commit()
				ctx, cancel := context.WithCancelCause(t.Context())
				left, parts := 0, 0
				w.writer = nftables.NewWriter(service.IPv4, nftables.WriterConfig{
					TransactionBytes: 16 << 10, Inside: w.node.Do,
					Open: func() (nftables.Socket, error) {
						socket, err := wire.Open()
						return halting{socket, &left}, err
					},
					Progress: func(int, int) {
						if parts++; parts != 2 {
							return
						}
						if c.stranger != "" {
							w.nft(c.stranger, "-f", "-")
						}
						if c.busy {
							left = 1
						} else {
							cancel(errors.New("out of time"))
						}
					},
				})
				serve(endpoints[1])
				batch := w.ledger.Plan()
				receipt := w.writer.Write(ctx, batch)
				want := dataplane.Unknown
				if c.busy {
					want = dataplane.Busy
				}
				if receipt.Outcome != want || parts < 2 {
					t.Fatalf("got %v after %d transactions, want %v after 2", receipt, parts, want)
				}
				checkCertain(t, batch, receipt, w.read())
				if none := len(receipt.Certain) == 0; none != c.nothing {
					t.Errorf("%d of %d objects are called certain", len(receipt.Certain), len(batch.Changes))
				}
				w.ledger.Settle(batch, receipt)
				if c.stranger != "" {
					w.audit() // Watch would ask for it
				}
				w.commit()
				if drift := w.audit(); drift.Any() {
					t.Errorf("after the second attempt: %+v", drift)
				}
				if err := w.writer.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// checkCertain compares what a receipt calls certain with what is there.
func checkCertain(t *testing.T, batch *dataplane.Batch, receipt dataplane.Receipt, objects []dataplane.Object) {
	t.Helper()
	there := make(map[dataplane.ID]*dataplane.Object)
	for i := range objects {
		there[objects[i].ID] = &objects[i]
	}
	for i := range batch.Changes {
		id := batch.Changes[i].ID
		if said, certain := receipt.Certain[id]; certain && !dataplane.Same(said, there[id]) {
			t.Errorf("%s %x is called certain (there: %t), and is %t there", id.Container, id.Name, said != nil, there[id] != nil)
		}
	}
}
