// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// resize sets a buffer of a socket (SO_RCVBUF or SO_SNDBUF) as a process without
// privileges might find it.
func resize(socket *wire.Socket, buffer, bytes int) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			return err
		}
		if protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL); err != nil || protocol != unix.NETLINK_NETFILTER {
			continue // another kind of socket, or none
		}
		name, err := unix.Getsockname(fd)
		if err != nil {
			return err
		}
		if at, ok := name.(*unix.SockaddrNetlink); ok && at.Pid == socket.Port() {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, buffer, bytes); err != nil {
				return err
			}
		}
	}
	return nil
}

// openNarrow opens sockets with the smallest possible receive buffer. If the kernel rejects
// a transaction for many reasons, it has no room for most of its answers, and reports
// ENOBUFS.
func openNarrow() (kernel.Socket, error) {
	socket, err := wire.Open()
	if err == nil {
		err = resize(socket, unix.SO_RCVBUF, 0)
	}
	return socket, err
}

// small is a socket with a small send buffer.
type small struct{ *wire.Socket }

const smallBytes = 100 << 10

func openSmall() (kernel.Socket, error) {
	socket, err := wire.Open()
	if err == nil {
		err = resize(socket, unix.SO_SNDBUF, smallBytes/2) // the kernel doubles it
	}
	return small{socket}, err
}

// Room is for kernel.Socket.
func (small) Room() int { return smallBytes }

// TestWriter_AnswersDoNotFit: a rejection is known although the kernel drops most of its answers for lack of room, and
// the next request does not take these answers for its own. (Once a table was taken for absent, and its rules were
// written twice.)
func TestWriter_AnswersDoNotFit(t *testing.T) {
	w := newWorld(t, service.IPv4, kernel.WriterConfig{})
	w.restart(kernel.WriterConfig{Open: openNarrow})
	for n := range 20 {
		w.serve(plain(n, 3, 0))
	}
	w.commit()
	for n := range 20 {
		view := plain(n, 3, 0)
		w.want(view.Key, append(w.renderer.Service(context.Background(), view, &w.facts), unheardOf(n)))
	}
	batch := w.ledger.Plan()
	receipt := w.writer.Write(t.Context(), batch)
	if receipt.Outcome != dataplane.Rejected || !errors.Is(receipt.Err, unix.ENOENT) {
		t.Errorf("got %v, want a rejection with the kernel's reason", receipt)
	}
	w.ledger.Settle(batch, receipt)
	for n := range 20 {
		w.serve(plain(n, 3, 0))
	}
	if drift := w.audit(); drift.Any() {
		t.Errorf("after the rejection: %+v", drift)
	}
	w.commit()
	if drift := w.audit(); drift.Any() {
		t.Errorf("after an audit and a write: %+v", drift)
	}
}

// unheardOf is a chain whose rule has an expression that no kernel knows.
func unheardOf(n int) dataplane.Object {
	c := rules.Chain{Rules: []rules.Rule{{Exprs: []rules.Expr{&rules.Unknown{Name: "telepathy"}}}}}
	return dataplane.Object{
		ID:   dataplane.ID{Container: "chain", Name: fmt.Sprint("endpoint-unheard-of-", n)},
		Kind: dataplane.Owned, Body: string(c.Encode()),
	}
}

// TestWriter_ServiceDoesNotFit: a Service with more elements than fit into one transaction is rejected by name. (In a
// user namespace that is some thousand endpoints. Once the write was retried forever, and later Services of the batch
// never landed.)
func TestWriter_ServiceDoesNotFit(t *testing.T) {
	w := newWorld(t, service.IPv4, kernel.WriterConfig{})
	w.restart(kernel.WriterConfig{Open: openSmall})
	w.commit()
	const large = 7
	for n := range 20 {
		endpoints := 3
		if n == large {
			endpoints = 5000
		}
		w.serve(plain(n, endpoints, 0))
	}
	batch := w.ledger.Plan()
	receipt := w.writer.Write(t.Context(), batch)
	if receipt.Outcome != dataplane.Rejected || !errors.Is(receipt.Err, unix.EMSGSIZE) {
		t.Fatalf("got %v, want a rejection for the size", receipt)
	}
	if want := []service.Key{plain(large, 1, 0).Key}; !slices.Equal(receipt.Suspects, want) {
		t.Errorf("suspects %v, want %v", receipt.Suspects, want)
	}
	w.ledger.Settle(batch, receipt)
	w.serve(plain(large, 3, 0))
	w.commit()
	if drift := w.audit(); drift.Any() {
		t.Errorf("with the Service made smaller: %+v", drift)
	}
}

// halting is a socket whose n-th transaction from now fails for lack of memory.
type halting struct {
	*wire.Socket
	left *int
}

// Commit is for kernel.Socket.
func (h halting) Commit(t *wire.Transaction) ([]*wire.Rejection, error) {
	if *h.left--; *h.left == 0 {
		return nil, &netlink.NotSentError{Err: unix.ENOBUFS}
	}
	return h.Socket.Commit(t)
}

// interruption ends a batch after two of its transactions.
type interruption struct {
	// stranger is what another program does then, in nft's syntax.
	stranger string
	// busy means that the kernel takes no more. Otherwise the context ends.
	busy bool
}

// TestWriter_InterruptedBatchCertainty: if a batch ends after some of its transactions, for lack of time or memory,
// what the receipt calls certain is what the kernel has, even if another program changed the table in between. After
// the next batch the kernel has what is wanted.
func TestWriter_InterruptedBatchCertainty(t *testing.T) {
	// In the order of names, one of the first Services is written, and one of the last
	// has not been removed.
	const one = "delete element ip kube-proxy ${frontends} { 172.16.0.0 . tcp . 80 }"
	const last = "delete element ip kube-proxy ${frontends} { 172.16.0.99 . tcp . 80 }"
	for name, i := range map[string]interruption{
		"out of time": {},
		"busy":        {busy: true},
		"out of time, and a stranger's own table": {stranger: "add table inet other"},
		"out of time, and an element gone":        {stranger: one},
		"busy, and an element gone":               {stranger: one, busy: true},
		"busy, and the table gone":                {stranger: "delete table ip kube-proxy", busy: true},
	} {
		for direction, endpoints := range map[string][2]int{"added": {0, 4}, "changed": {4, 3}, "removed": {4, 0}} {
			t.Run(name+", "+direction, func(t *testing.T) {
				w := newWorld(t, service.IPv4, kernel.WriterConfig{})
				w.serve(plain(0, 2, 0))
				w.serveMany(endpoints[0])
				w.commit()
				w.serveMany(endpoints[1])
				interrupt := i
				if direction == "removed" && i.stranger == one {
					interrupt.stranger = last
				}
				interrupt.run(w)
			})
		}
	}
}

// serveMany serves many Services with so many endpoints, or deletes them if it is 0.
func (w *world) serveMany(endpoints int) {
	for n := range 200 {
		if view := plain(n, endpoints, endpoints); endpoints > 0 {
			w.serve(view)
		} else {
			w.want(view.Key, nil)
		}
	}
}

// run writes what is wanted, and is interrupted.
func (i interruption) run(w *world) {
	w.Helper()
	ctx, cancel := context.WithCancelCause(w.Context())
	left, parts := 0, 0
	w.use(kernel.WriterConfig{
		TransactionBytes: 16 << 10,
		Open: func() (kernel.Socket, error) {
			socket, err := wire.Open()
			return halting{socket, &left}, err
		},
		Progress: func(int, int) {
			if parts++; parts != 2 {
				return
			}
			if i.stranger != "" {
				w.nft(i.stranger, "-f", "-")
			}
			if i.busy {
				left = 1
			} else {
				cancel(errors.New("out of time"))
			}
		},
	})
	batch := w.ledger.Plan()
	receipt := w.writer.Write(ctx, batch)
	want := dataplane.Unknown
	if i.busy && i.stranger == "" { // otherwise an audit has to come first
		want = dataplane.Busy
	}
	if receipt.Outcome != want || parts < 2 {
		w.Fatalf("got %v after %d transactions, want %v after 2", receipt, parts, want)
	}
	if none := len(receipt.Certain) == 0; none != (i.stranger != "") {
		w.Errorf("%d of %d objects are called certain", len(receipt.Certain), len(batch.Changes))
	}
	w.carryOn(batch, receipt, i.stranger != "")
}

// use goes on with another writer.
func (w *world) use(config kernel.WriterConfig) {
	config.Inside = w.node.Do
	writer := kernel.NewWriter(w.family, config)
	w.Cleanup(func() {
		if err := writer.Close(); err != nil {
			w.Error(err)
		}
	})
	w.writer = writer
}

// carryOn compares a receipt with the kernel, and writes the rest. If another program was at
// work it audits first, as Watch would request.
func (w *world) carryOn(batch *dataplane.Batch, receipt dataplane.Receipt, foreign bool) {
	w.Helper()
	checkCertain(w, batch, receipt, w.read())
	w.ledger.Settle(batch, receipt)
	if foreign {
		w.audit()
	}
	w.commit()
	if drift := w.audit(); drift.Any() {
		w.Errorf("after the second attempt: %+v", drift)
	}
}

// checkCertain compares what a receipt calls certain with the kernel.
func checkCertain(t testing.TB, batch *dataplane.Batch, receipt dataplane.Receipt, objects []dataplane.Object) {
	t.Helper()
	there := make(map[dataplane.ID]*dataplane.Object)
	for i := range objects {
		there[objects[i].ID] = &objects[i]
	}
	for i := range batch.Changes {
		id := batch.Changes[i].ID
		if said, certain := receipt.Certain[id]; certain && !dataplane.Same(said, there[id]) {
			t.Errorf("%s %x is called certain (exists: %t), but exists: %t", id.Container, id.Name, said != nil, there[id] != nil)
		}
	}
}

// TestWriter_TableRazedBlamesNoService: if the table is deleted between two transactions of a batch, no Service is a
// suspect. (Once a Service with affinity was quarantined, whose elements are in a map that the same batch creates.)
func TestWriter_TableRazedBlamesNoService(t *testing.T) {
	for direction, present := range map[string]bool{"added": false, "removed": true} {
		t.Run(direction, func(t *testing.T) {
			transactions := 1
			for raze(t, present, transactions) {
				transactions++
			}
			if transactions < 10 {
				t.Errorf("%d transactions only: that proves little", transactions)
			}
		})
	}
}

// raze adds Services, or removes them if they exist, while another program deletes the table
// after so many transactions. It reports false if that was the last one.
func raze(t *testing.T, present bool, after int) bool {
	t.Helper()
	w := newWorld(t, service.IPv4, kernel.WriterConfig{})
	w.serve(plain(99, 4, 0))
	if present {
		w.serveMixed(12)
	}
	w.commit()
	if present {
		for n := range 12 {
			w.want(plain(n, 1, 0).Key, nil)
		}
	} else {
		w.serveMixed(12)
	}
	parts := 0
	w.use(kernel.WriterConfig{TransactionBytes: 3 << 10, Progress: func(int, int) {
		if parts++; parts == after {
			w.nft("delete table "+w.table(), "-f", "-")
		}
	}})
	batch := w.ledger.Plan()
	receipt := w.writer.Write(t.Context(), batch)
	if receipt.Outcome == dataplane.Landed {
		return false
	}
	if receipt.Outcome != dataplane.Unknown || len(receipt.Suspects) > 0 {
		t.Errorf("razed after transaction %d: got %v with suspects %v, want unknown with none", after, receipt, receipt.Suspects)
	}
	w.carryOn(batch, receipt, true)
	return true
}

// serveMixed serves some Services, every fourth with affinity.
func (w *world) serveMixed(services int) {
	for n := range services {
		view := plain(n, 4, 0)
		if n%4 == 1 {
			view.Ports[service.IPv4][0].AffinitySeconds = 60
		}
		w.serve(view)
	}
}
