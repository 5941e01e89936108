package nftables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// Writer brings batches into one family's table, each in one transaction of
// netlink messages, a very large one in several. It implements
// [dataplane.Writer] and [dataplane.Watcher].
//
// The messages of a change depend on that change alone. Nothing is listed on the
// way of a batch that lands; objects whose state is unsure, and those of a batch
// that was refused, are looked up one by one. Write and Read belong to one
// goroutine at a time; Watch may run beside them.
type Writer struct {
	d      *dialect
	config WriterConfig
	// opening guards socket, which is opened by the first call that needs it;
	// only Write and Read use it.
	opening sync.Mutex
	socket  Socket
	// equal holds, by name, the sets that read back otherwise than they were written.
	equal map[string]sameSet
	// held is set once the kernel has held on to a chain: from then on chains go in
	// transactions of their own, so that nobody's change waits for their end.
	held bool
}

// Socket is what a Writer needs of its connection to nf_tables. *wire.Socket is
// the real one, and says what each method does.
type Socket interface {
	Commit(*wire.Transaction) ([]*wire.Refusal, error)
	Ask(ctx context.Context, kind uint16, family uint8, all bool, attrs []byte, each func(netlink.Netfilter)) error
	Port() uint32
	Room() int
	Close() error
}

// WriterConfig tunes a Writer; the zero value is the default.
type WriterConfig struct {
	// TransactionBytes bounds a transaction, softly by one Service. Default
	// 4 MiB, or what the socket takes if that is less (an unprivileged user
	// namespace has net.core.wmem_max).
	TransactionBytes int
	// LateRelease says that the kernel refuses to delete a chain in the
	// transaction that deletes the last element leading to it; see Probe. A writer
	// that is refused such a deletion goes on as if it were set.
	LateRelease bool
	// Progress is called after each transaction of a batch that needs several,
	// with the number of changes that have landed and that of all.
	Progress func(landed, all int)
	// Inside runs a function on a thread in the network namespace to work in.
	// Default: the process's own namespace.
	Inside func(func() error) error
	// Open opens the socket, on a thread in that namespace. Default: wire.Open.
	// Tests of failures put their own in.
	Open func() (Socket, error)
}

const transactionBytesDefault = 4 << 20

var (
	_ dataplane.Writer  = (*Writer)(nil)
	_ dataplane.Watcher = (*Writer)(nil)
)

// NewWriter makes a writer for one family.
func NewWriter(family service.Family, config WriterConfig) *Writer {
	if config.TransactionBytes <= 0 {
		config.TransactionBytes = transactionBytesDefault
	}
	if config.Progress == nil {
		config.Progress = func(int, int) {}
	}
	if config.Inside == nil {
		config.Inside = func(f func() error) error { return f() }
	}
	if config.Open == nil {
		config.Open = func() (Socket, error) { return wire.Open() }
	}
	return &Writer{d: dialects[family], config: config, equal: make(map[string]sameSet)}
}

// Close gives the socket up; the rules stay. The next call opens a new one.
func (w *Writer) Close() error {
	w.opening.Lock()
	defer w.opening.Unlock()
	if w.socket == nil {
		return nil
	}
	err := w.socket.Close()
	w.socket = nil
	return err
}

// open gives the socket.
func (w *Writer) open() (Socket, error) {
	w.opening.Lock()
	defer w.opening.Unlock()
	if w.socket != nil {
		return w.socket, nil
	}
	err := w.config.Inside(func() error {
		socket, err := w.config.Open()
		if err == nil {
			w.socket = socket
		}
		return err
	})
	return w.socket, err
}

// reader reads by a socket. A kernel in memory announces nothing.
func (w *Writer) reader(socket Socket) *reader {
	r := &reader{d: w.d, socket: socket, equal: w.equal}
	if real, ok := socket.(interface {
		Listen() (*netlink.TableListener, error)
	}); ok {
		r.listen = func() (listener *netlink.TableListener, err error) {
			err = w.config.Inside(func() error {
				listener, err = real.Listen()
				return err
			})
			return listener, err
		}
	}
	return r
}

// Write makes one attempt. A transaction cannot be interrupted; the context
// counts between transactions.
func (w *Writer) Write(ctx context.Context, batch *dataplane.Batch) dataplane.Receipt {
	if ctx.Err() != nil {
		return dataplane.Receipt{Outcome: dataplane.Unknown, Certain: untouched(batch.Changes), Err: context.Cause(ctx)}
	}
	socket, err := w.open()
	if err != nil {
		return dataplane.Receipt{Outcome: dataplane.Busy, Certain: untouched(batch.Changes), Err: err}
	}
	a := &attempt{w: w, socket: socket, reader: w.reader(socket)}
	changes, err := a.makeSure(ctx, batch.Changes)
	if err == nil {
		err = a.carryOut(ctx, changes)
	}
	if err != nil {
		a.account(ctx, batch.Changes, err)
	}
	a.receipt.Notes = a.exchanges.notes(w.d.family)
	return a.receipt
}

// untouched gives what a batch that was not begun leaves: what was known.
func untouched(changes []dataplane.Change) map[dataplane.ID]*dataplane.Object {
	certain := make(map[dataplane.ID]*dataplane.Object)
	for i := range changes {
		if c := &changes[i]; !c.Unsure {
			certain[c.ID] = c.Before
		}
	}
	return certain
}

// Read gives all objects in the table, sorted by ID, and none when there is no
// table.
func (w *Writer) Read(ctx context.Context) ([]dataplane.Object, error) {
	socket, err := w.open()
	if err == nil {
		var objects []dataplane.Object
		objects, err = w.reader(socket).all(ctx)
		if err == nil {
			slices.SortFunc(objects, func(a, b dataplane.Object) int { return a.ID.Compare(b.ID) })
			return objects, nil
		}
	}
	return nil, fmt.Errorf("read the %s table %s: %w", w.d.family, TableName, err)
}

// attempt is one Write.
type attempt struct {
	w       *Writer
	socket  Socket
	reader  *reader
	receipt dataplane.Receipt
	// plan is nil until there is one; landed counts its parts in the kernel.
	plan   *plan
	landed int
	// exchanged says that sets were exchanged before there was a plan; within are
	// those that are exchanged in it, beside those of them that are built beside the
	// old ones.
	exchanged      bool
	within, beside []*exchange
	exchanges      exchanges
	// generation is that of the kernel's tables before the first of several
	// transactions.
	generation uint32
}

// lookUpMax is the number of unsure objects up to which they are looked up one by
// one; more are found by reading the table.
const lookUpMax = 2000

// makeSure finds out the state of objects that are not sure, so that changes can
// be written for what is there.
func (a *attempt) makeSure(ctx context.Context, changes []dataplane.Change) ([]dataplane.Change, error) {
	var unsure []dataplane.ID
	for i := range changes {
		if changes[i].Unsure {
			unsure = append(unsure, changes[i].ID)
		}
	}
	if len(unsure) == 0 {
		return changes, nil
	}
	there, err := a.lookUp(ctx, unsure)
	if err != nil {
		return nil, &netlink.NotSentError{Err: fmt.Errorf("look up objects: %w", err)}
	}
	sure := slices.Clone(changes)
	for i := range sure {
		if sure[i].Unsure {
			sure[i].Before = there[sure[i].ID]
		}
	}
	return sure, nil
}

// lookUp gives the present state of objects; those that are absent are missing
// from the result or nil in it.
func (a *attempt) lookUp(ctx context.Context, ids []dataplane.ID) (map[dataplane.ID]*dataplane.Object, error) {
	there := make(map[dataplane.ID]*dataplane.Object, len(ids))
	if len(ids) > lookUpMax {
		objects, err := a.reader.all(ctx)
		for i := range objects {
			there[objects[i].ID] = &objects[i]
		}
		return there, err
	}
	err := a.reader.steadily(ctx, func() error {
		for _, id := range ids {
			object, err := a.reader.one(ctx, id)
			if err != nil {
				return err
			}
			there[id] = object
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return there, nil
}

// lateRelease reports whether chains are deleted in transactions of their own.
func (w *Writer) lateRelease() bool { return w.config.LateRelease || w.held }

// carryOut plans and commits.
func (a *attempt) carryOut(ctx context.Context, changes []dataplane.Change) error {
	changes, together, err := a.exchangeSets(ctx, changes)
	if err != nil {
		return err
	}
	var p *plan
	if together {
		p = a.planTogether(changes)
	} else {
		p = newPlan(a.w.d, changes, a.bytesMax(), a.w.lateRelease())
	}
	a.plan = p
	if len(p.parts) > 1 {
		var err error
		if a.generation, err = a.reader.generation(ctx); err != nil {
			return &netlink.NotSentError{Err: err}
		}
	}
	complete := 0
	for i, part := range p.parts {
		if i > 0 && ctx.Err() != nil {
			return &unfinishedError{context.Cause(ctx)}
		}
		if err := a.commit(p, part); err != nil {
			return err
		}
		a.landed++
		if complete += p.completes[i]; len(p.parts) > 1 {
			a.w.config.Progress(complete, len(changes))
		}
	}
	a.receipt.Written.Objects = len(changes)
	return a.bringHome(ctx)
}

// commit writes one transaction.
func (a *attempt) commit(p *plan, part []operation) error {
	t := p.transaction(part)
	a.receipt.Written = a.receipt.Written.Add(dataplane.Written{
		Lines: len(part), Bytes: t.Bytes(), Calls: 1,
	})
	refusals, err := a.socket.Commit(t)
	if errors.Is(err, unix.EMSGSIZE) {
		refusals, err = []*wire.Refusal{tooLarge(p, part)}, nil
	}
	if err != nil {
		return err
	}
	if len(refusals) > 0 {
		return &refusedError{refusals: refusals, changes: p.changes}
	}
	return nil
}

// tooLarge refuses a transaction that does not fit into the socket's buffer, in
// the kernel's stead: it will fit no better later. The plan fills half of the
// buffer at most before the last Service that it puts in, so it is that one which
// is too large: the one with the most bytes.
func tooLarge(p *plan, part []operation) *wire.Refusal {
	bytes := make(map[service.Key]int)
	var largest service.Key
	for _, o := range part {
		c := &p.changes[o.number]
		bytes[c.Owner] += cost(c)
		if bytes[c.Owner] > bytes[largest] {
			largest = c.Owner
		}
	}
	r := &wire.Refusal{Errno: unix.EMSGSIZE}
	for _, o := range part {
		if p.changes[o.number].Owner == largest {
			r.About = append(r.About, o.number)
		}
	}
	return r
}

// isBusy reports whether the same transaction may work later.
func isBusy(err error) bool {
	for _, errno := range []error{unix.ENOBUFS, unix.ENOMEM, unix.EAGAIN, unix.EINTR} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
